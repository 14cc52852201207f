"""The examples of a run: which ones calibrate, train and evaluate, and that none does two of these."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench import suite
from qbench.cache import store
from qbench.data import CONTENTS, DataRequest, request_of
from qbench.data_preparation import prepare_data, require_not_trained_on
from qbench.datasets import overlap, validation
from qbench.datasets.base import Dataset, Examples
from qbench.errors import DataError, SuiteError


@pytest.fixture
def root(tmp_path):
    return store.open_cache(tmp_path / "cache")


def images(n, *, seed=0, size=4):
    return np.random.default_rng(seed).random((n, 1, size, size), dtype=np.float32)


def npz(folder, **arrays):
    values = {"train_inputs": images(40, seed=1), "test_inputs": images(20, seed=2)} | arrays
    labels = {f"{split}_labels": np.arange(len(values[f"{split}_inputs"])) % 10 for split in ("train", "test")}
    values = labels | values
    np.savez(folder / "d.npz", **values)
    return DataRequest(
        loader="npz",
        value="d.npz",
        options={},
        base=folder,
        calibrate_split="train",
        calibrate_samples=8,
        calibrate_seed=0,
        evaluate_split="test",
        evaluate_samples=None,
        evaluate_seed=0,
        train=False,
    )


def prepare(request, root, **changes):
    return prepare_data(replace(request, **changes), root, progress=lambda *_: None)


# --- kept apart ------------------------------------------------------------------------------------------------------


def leaking(folder, count):
    """Evaluation examples of which the first ``count`` are training examples, too, from position 30 on."""
    train, test = images(40, seed=1), images(20, seed=2)
    test[:count] = train[30 : 30 + count]
    return npz(folder, train_inputs=train, test_inputs=test)


def test_an_evaluation_example_that_calibrates_is_an_error(root, tmp_path):
    """The message says how many, names the first with what they equal, and both ways out."""
    with pytest.raises(DataError) as raised:
        prepare(leaking(tmp_path, 7), root, calibrate_samples=40)
    assert str(raised.value) == (
        "npz:d.npz: 7 of 20 examples of the split 'test' are also among the calibration examples of 'train': "
        "test[0] (= train[30]), test[1] (= train[31]), test[2] (= train[32]), test[3] (= train[33]), "
        "test[4] (= train[34]) and 2 more; a score on examples that were seen before proves nothing: take them out of "
        "one of the two, evaluate on another split, or set `data: {overlap: allow}` where that is meant"
    )


def test_what_trains_counts_whole(root, tmp_path):
    """QAT sees the whole split: an example outside the calibration subset is an error then, and only then."""
    request = leaking(tmp_path, 1)
    few = {"calibrate_samples": 2, "calibrate_seed": 3}
    assert prepare(request, root, **few).shared_examples == 0
    with pytest.raises(DataError, match=r"1 of 20 .* is also among the training examples of 'train': test\[0\]"):
        prepare(request, root, **few, train=True)


def test_every_calibration_subset_is_looked_at(root, tmp_path):
    """A leak that only the subset of a later seed has is found."""
    train = images(40, seed=1)
    request = npz(tmp_path, train_inputs=train)
    first, second = (set(prepare(request, root, calibrate_seed=seed).calibration()[0][:, 0, 0, 0]) for seed in (0, 1))
    only = next(i for i in range(40) if train[i, 0, 0, 0] in second - first)
    request = npz(tmp_path, train_inputs=train, test_inputs=np.concatenate([images(5, seed=2), train[only : only + 1]]))
    assert prepare(request, root).shared_examples == 0
    with pytest.raises(DataError, match=rf"test\[5\] \(= train\[{only}\]\)"):
        prepare(request, root, calibrate_seeds=2)


def test_a_suite_that_allows_it_is_told_how_many(root, tmp_path):
    """`overlap: allow` goes on; the number is kept for the records, whose warning tells it."""
    data = prepare(leaking(tmp_path, 3), root, calibrate_samples=40, allow_overlap=True)
    assert data.shared_examples == 3
    assert data.notes == ()


def test_the_suite_decides_about_overlap_and_seeds(tmp_path):
    """The keys reach the request; an error is the default, and so is one seed."""
    text = "suite: s\nmodels: [digits-cnn]\ndata: {{dataset: digits{more}}}\nmatrix: {{}}\n"
    requests = [
        request_of(suite.parse(text.format(more=more), file="s.yaml").data, tmp_path, train=False)
        for more in ("", ", overlap: allow, calibrate: {seeds: 3}")
    ]
    assert [(request.allow_overlap, request.calibrate_seeds) for request in requests] == [(False, 1), (True, 3)]


def test_a_split_of_fewer_than_the_default_calibrates_whole_and_says_so(root, tmp_path):
    """Nobody asked for 256: all there are are taken, with a note whose key silences it; a number that was written is an
    error, and a split that has enough gives no note."""
    text = "suite: s\nmodels: [digits-cnn]\ndata: {dataset: {npz: d.npz}%s}\nmatrix: {}\n"
    npz(tmp_path)

    def data_of(more):
        spec = suite.parse(text % more, file="s.yaml").data
        return prepare(request_of(spec, tmp_path, train=False), root)

    data = data_of("")
    assert len(data.calibration()[0]) == 40
    assert data.notes == (
        "calibration takes all 40 examples of 'train': by default it takes 256; `data: {calibrate: {samples: 40}}` "
        "says that it is meant",
    )
    written = data_of(", calibrate: {samples: 40}")
    assert (written.notes, written.calibration_digest) == ((), data.calibration_digest)
    with pytest.raises(DataError, match="256 were asked for, there are 40"):
        data_of(", calibrate: {samples: 256}")
    npz(tmp_path, train_inputs=images(300, seed=1))
    assert data_of("").notes == ()


def test_one_split_for_both_is_allowed_only_with_overlap():
    """A suite that says so may calibrate on what it evaluates; else its line is named, with the way out."""
    text = "suite: s\nmodels: [digits-cnn]\ndata: {dataset: digits, calibrate: {split: test}%s}\nmatrix: {}\n"
    assert suite.parse(text % ", overlap: allow", file="s.yaml").data.calibrate.split == "test"
    with pytest.raises(SuiteError, match=r"both take 'test'.*overlap: allow"):
        suite.parse(text % "", file="s.yaml")


def test_a_network_trained_on_evaluation_examples_is_an_error(root, tmp_path):
    """What a built-in learned on is held against what the suite evaluates, unless that is allowed."""
    data = prepare(npz(tmp_path), root)
    trained_on = examples(np.concatenate([images(9), images(20, seed=2)[12:18]]))
    said = r"^mine was trained on 6 of the 20 evaluation examples: test\[12\], .*test\[16\] and 1 more; take .*allow"
    with pytest.raises(DataError, match=said):
        require_not_trained_on(data, trained_on, name="mine")
    assert require_not_trained_on(data, examples(images(9)), name="mine") is None
    note = require_not_trained_on(replace(data, allow_overlap=True), trained_on, name="mine")
    assert note == "mine was trained on 6 of the 20 evaluation examples"


# --- the same by content ---------------------------------------------------------------------------------------------


def examples(*arrays):
    return Examples(inputs=arrays, labels=None)


LAYOUTS = {
    "as it is": lambda array: array,
    "Fortran order": np.asfortranarray,
    "a view with steps": lambda array: np.repeat(array, 2, axis=2)[:, :, ::2],
    "big-endian": lambda array: array.astype(array.dtype.newbyteorder(">")),
    "float64": lambda array: array.astype(np.float64),
    "another axis of 1": lambda array: array[:, :, None],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32])
def test_the_same_values_are_the_same_example(layout, dtype):
    """Neither the order of bytes in memory nor the type that a file has for the values hides a leak."""
    values = np.random.default_rng(0).integers(0, 200, (6, 2, 3)).astype(dtype)
    known = examples(values)
    assert overlap.find_shared([known], examples(LAYOUTS[layout](values[[4, 1]]))) == {0: (0, 4), 1: (0, 1)}


@pytest.mark.parametrize(
    ("kind", "begins"), [("uint8", "f79e90"), ("int16", "f79e90"), ("int32", "4e5b5c"), ("float64", "f79e90")]
)
def test_the_digest_of_an_example_never_changes(kind: str, begins: str) -> None:
    """A gate finds the examples of its baseline by it: wide whole numbers are read as int64, all else as float32."""
    inputs = (np.arange(4).reshape(2, 2).astype(kind), np.ones((2, 1), np.float32))
    digests = overlap.digest_examples(Examples(inputs=inputs, labels=None))
    assert (digests.dtype, digests.shape) == (np.uint8, (2, 16))
    assert digests[0].tobytes().hex()[:6] == begins


def test_a_zero_has_no_sign():
    """-0.0 and 0.0 are the same to a network."""
    assert overlap.find_shared([examples(np.zeros((1, 3)))], examples(np.full((1, 3), -0.0, np.float32))) == {0: (0, 0)}


def test_whole_numbers_of_two_widths_are_compared_by_value():
    """Token ids as int32 here and int64 there are the same text; other ids, whose bytes are the same, are not."""
    known = examples(np.array([[1, 0, 2, 0]], np.int32))
    assert overlap.find_shared([known], examples(np.array([[1, 0, 2, 0]], np.int64))) == {0: (0, 0)}
    assert overlap.find_shared([known], examples(np.array([[1, 2]], np.int64))) == {}


def test_the_end_of_one_input_is_not_the_beginning_of_the_next():
    """[1], [2, 3] and [1, 2], [3] are different examples."""
    split = [np.array([[1]]), np.array([[2, 3]])], [np.array([[1, 2]]), np.array([[3]])]
    assert overlap.find_shared([examples(*split[0])], examples(*split[1])) == {}


rows = st.lists(st.tuples(st.integers(-2, 2), st.sampled_from([0.0, -0.0, 0.5, 1.0])), min_size=1, max_size=12)


@given(rows, rows, st.integers(1, 9))
@settings(max_examples=40)
def test_sharing_is_equality_of_values(first, second, block):
    """What is found is what comparing every pair finds, whatever the size of the blocks."""
    ints, floats = ([np.array([row[k] for row in side]) for side in (first, second)] for k in (0, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlap, "BLOCK", block)
        left, right = (examples(a[:, None].astype(np.int64), b[:, None]) for a, b in zip(ints, floats, strict=True))
        shared = overlap.find_shared([left], right)
        assert overlap.find_repeated(left) == len(first) - len({(a, b + 0.0) for a, b in first})
    assert shared == {i: (0, first.index(row)) for i, row in enumerate(second) if row in first}


# --- calibration subsets ---------------------------------------------------------------------------------------------


def test_each_further_seed_is_what_a_suite_with_that_seed_would_have(root, tmp_path):
    """Subset number i is that of seed + i: the same examples and the same digest, so the same artifact."""
    request = npz(tmp_path)
    data = prepare(request, root, calibrate_seed=5, calibrate_seeds=3)
    assert [subset.seed for subset in data.other_subsets] == [6, 7]
    for subset in data.other_subsets:
        alone, drawn = prepare(request, root, calibrate_seed=subset.seed), data.with_calibration(subset)
        assert drawn.calibration_digest == alone.calibration_digest != data.calibration_digest
        assert np.array_equal(drawn.calibration()[0], alone.calibration()[0])
        assert (drawn.evaluation_digest, drawn.other_subsets) == (data.evaluation_digest, ())


def test_seeds_that_draw_the_same_examples_are_said(root, tmp_path):
    """A split of no more examples than are drawn gives one subset: no luck can be seen, and none is made up."""
    data = prepare(npz(tmp_path), root, calibrate_samples=40, calibrate_seeds=3)
    assert data.other_subsets == ()
    assert data.notes == (
        "calibrate.seeds: 3 seeds draw 1 different subset of 40 examples from split 'train'; take fewer samples to see "
        "what the draw matters",
    )


def test_a_split_is_read_once_for_all_its_subsets():
    """Three draws and the whole of a split of which every draw reads everything cost one reading."""

    class Counting(Dataset):
        name, splits, read = "counting", ("train",), 0

        def load(self, split):
            self.read += 1
            return examples(np.arange(10)[:, None])

    dataset = Counting()
    drawn = [dataset.sample("train", samples, seed) for samples, seed in ((3, 0), (3, 1), (None, 0))]
    assert [len(positions) for positions in drawn] == [3, 3, 10]
    assert dataset.read == 1


@pytest.mark.parametrize(
    ("samples", "at_most", "count", "of"),
    [(None, 5, 5, 20), (None, 50, 20, 20), (8, 5, 5, 8), (8, 50, 8, 8), (8, None, 8, None)],
)
def test_at_most_so_many_are_evaluated(root, tmp_path, samples, at_most, count, of):
    """Fewer are no error, and how many there are is told; the few are among those of the whole."""
    request = npz(tmp_path)
    whole = prepare(request, root, evaluate_samples=samples)
    few = prepare(request, root, evaluate_samples=samples, evaluate_at_most=at_most)
    assert (few.evaluation_count, few.evaluation_of) == (count, of)
    assert set(few.evaluation_ids()) <= set(whole.evaluation_ids())
    assert few.calibration_digest == whole.calibration_digest


# --- what else is said of the data -----------------------------------------------------------------------------------


def test_repeated_evaluation_examples_are_said(root, tmp_path):
    """Copies are no further evidence: the number is noted."""
    test = images(20, seed=2)
    test[15:] = test[0]
    (note,) = prepare(npz(tmp_path, test_inputs=test), root).notes
    assert note.startswith("5 of 20 evaluation examples repeat an earlier one; intervals count them as independent")


def test_renamed_examples_are_not_answered_from_the_cache(root, tmp_path):
    """The same pixels under other names give the new names, and the same digest."""
    (tmp_path / "mine.py").write_text(
        "import numpy as np, pathlib\n"
        "def load(split):\n"
        "    n, first = (8, 100) if split == 'train' else (3, 0)\n"
        "    letter = pathlib.Path(__file__).with_name('letter').read_text()\n"
        "    return {'inputs': np.arange(n * 4.0).reshape(n, 4) + first, 'ids': [f'{letter}{i}' for i in range(n)]}\n"
    )
    prepared = []
    for letter in "ab":
        (tmp_path / "letter").write_text(letter)
        prepared.append(prepare(npz(tmp_path), root, loader="python", value="mine.py:load"))
    assert [data.evaluation_ids() for data in prepared] == [["a0", "a1", "a2"], ["b0", "b1", "b2"]]
    assert prepared[0].evaluation_digest == prepared[1].evaluation_digest


def test_splits_that_no_network_takes_both_are_refused():
    """Another number of inputs or axes in one split is named with the shapes of both."""
    dataset = type("Mine", (Dataset,), {"name": "mine", "splits": ("train", "test"), "load": None})()
    with pytest.raises(DataError) as raised:
        validation.require_alike(
            dataset, {"train": examples(np.zeros((2, 3, 3, 1))), "test": examples(np.zeros((2, 9)))}
        )
    assert str(raised.value) == (
        "mine: one network cannot take both: split 'train': 1 input, float64[2, 3, 3, 1]; "
        "split 'test': 1 input, float64[2, 9]; give both splits the same axes"
    )


def test_examples_without_a_value_are_refused():
    """An array of shape (n, 0) would make all examples the same."""
    dataset = type("Mine", (Dataset,), {"name": "mine", "splits": ("train",), "load": None})()
    with pytest.raises(DataError, match=r"examples hold no value: the array has shape \(5, 0\)"):
        validation.check_dataset(dataset, "train", examples(np.zeros((5, 0))))


def test_ids_stand_beside_their_examples(root, tmp_path):
    """The raw evaluation examples come back with labels and ids as they were read."""
    data = prepare(npz(tmp_path), root)
    back = data.evaluation_examples()
    assert np.array_equal(back.inputs[0], images(20, seed=2))
    assert back.ids[:2] == ("test[0]", "test[1]")
    assert json.loads((data.folder / "ids.json").read_text()) == list(back.ids)


def test_classes_that_only_the_evaluation_has_are_said(root, tmp_path):
    """The splits number their classes differently, or one was cut out of sorted data: nothing else would show it."""
    labels = {"train_labels": np.arange(40) % 3, "test_labels": np.array([0, 1, 3, 4] * 5)}
    (note,) = prepare(npz(tmp_path, **labels), root).notes
    assert note == (
        "2 of 4 classes of 'test' are not in 'train': 3, 4 (10 of 20 evaluation examples); do both splits number the "
        "classes alike?"
    )


def test_five_classes_that_nothing_else_has_are_named(root, tmp_path):
    """And how many more there are."""
    labels = {"train_labels": np.zeros(40, int), "test_labels": np.arange(20) % 9}
    (note,) = prepare(npz(tmp_path, **labels), root).notes
    assert note.startswith("8 of 9 classes of 'test' are not in 'train': 1, 2, 3, 4, 5 and 3 more (17 of 20 evaluation")


def test_labels_of_one_class_are_said(root, tmp_path):
    """A network that always answers this class is right on every example."""
    labels = {"train_labels": np.arange(40) % 3, "test_labels": np.full(20, 2)}
    (note,) = prepare(npz(tmp_path, **labels), root).notes
    assert note.startswith("all 20 evaluation examples are of class 2: a network that always answers it is right")


def test_each_note_stands_beside_the_others(root, tmp_path):
    """Of one data set: copies, fewer examples than by default, labels that are alike, seeds that draw the same."""
    test = images(20, seed=2)
    test[15:] = test[0]
    request = npz(tmp_path, test_inputs=test, test_labels=np.full(20, 2))
    notes = prepare(request, root, calibrate_samples=99, calibrate_by_default=True, calibrate_seeds=2).notes
    assert [note.split()[0] for note in notes] == ["5", "calibration", "all", "calibrate.seeds:"]


def test_two_labels_of_one_class_are_said(root, tmp_path):
    """They are the fewest that can be alike."""
    labels = {"test_inputs": images(2, seed=2), "test_labels": np.array([2, 2])}
    (note,) = prepare(npz(tmp_path, **labels), root).notes
    assert note.startswith("all 2 evaluation examples are of class 2: ")


@pytest.mark.parametrize("labels", [np.arange(40) % 3 + 0.5, np.zeros((40, 2), int)])
def test_training_labels_of_another_kind_lack_no_class(root, tmp_path, labels):
    """As scores, or several of an example: nothing is known of classes then."""
    assert prepare(npz(tmp_path, train_labels=labels), root).notes == ()


def test_a_split_of_one_example_calibrates_by_default(root, tmp_path):
    """Whole, and says so."""
    request = npz(tmp_path, train_inputs=images(1, seed=1))
    data = prepare(request, root, calibrate_by_default=True)
    assert len(data.calibration()[0]) == 1
    assert data.notes[0].startswith("calibration takes all 1 examples of 'train': by default it takes 8")


def test_seeds_that_draw_fewer_subsets_than_there_are_of_them_are_counted(root, tmp_path):
    """Two examples, one at a time, are two subsets."""
    (note,) = prepare(
        npz(tmp_path, train_inputs=images(2, seed=1), train_labels=np.array([0, 1]), test_labels=np.arange(20) % 2),
        root, calibrate_samples=1, calibrate_seeds=8,
    ).notes  # fmt: skip
    assert note.startswith("calibrate.seeds: 8 seeds draw 2 different subsets of 1 examples from split 'train'; take")


def test_one_example_and_labels_of_another_kind_say_nothing_of_classes(root, tmp_path):
    """Neither does a class that the whole calibration split has."""
    single = {"test_inputs": images(1, seed=2), "test_labels": np.array([2])}
    assert prepare(npz(tmp_path, **single), root).notes == ()
    for labels in (np.full(20, 2.5), np.full((20, 2), 2)):
        assert prepare(npz(tmp_path, test_labels=labels), root).notes == ()


@pytest.mark.parametrize(
    ("count", "words"), [(1, "1 of 20 examples .* is also among"), (2, "2 of 20 .* are also among")]
)
def test_one_example_is_and_two_are(root, tmp_path, count, words):
    """In the training split whole, where that trains."""
    with pytest.raises(DataError, match=f"{words} the training examples of 'train'"):
        prepare(leaking(tmp_path, count), root, train=True)


def test_examples_of_another_size_than_those_that_calibrate_are_told_apart(root, tmp_path):
    """By all axes but the first."""
    assert prepare(npz(tmp_path), root).one_shape
    assert not prepare(npz(tmp_path, test_inputs=images(20, seed=2, size=5)), root).one_shape


def test_the_data_of_another_seed_have_no_further_ones(root, tmp_path):
    """Else they would be built again for each."""
    data = prepare(npz(tmp_path), root, calibrate_seeds=3)
    (second, third) = data.other_subsets
    other = data.with_calibration(third)
    assert (other.calibration_seed, other.calibration_digest, other.other_subsets) == (2, third.digest, ())
    assert second.seed == 1
    assert not np.array_equal(other.calibration()[0], data.calibration()[0])


def test_a_cache_that_somebody_emptied_is_told_of_once(root, tmp_path):
    """Examples and labels that are gone from under a run fail what needs them, and are no missing labels."""
    data = prepare(npz(tmp_path, train_inputs=images(40, seed=1)), root)
    shutil.rmtree(data.folder)
    for read in (lambda: data.evaluation(0, 1), data.evaluation_labels):
        with pytest.raises(DataError, match="is gone: something emptied the cache while it was in use"):
            read()


def test_made_up_boxes_have_their_second_side_no_less_than_the_first(root, tmp_path):
    """A network that looks a width up (LayoutLM) takes no negative one; of any data set they are the same."""

    def probe(value):
        folder = tmp_path / str(value)
        folder.mkdir()
        boxes = np.arange(60 * 20).reshape(60, 5, 4) + value
        whole = npz(folder, train_inputs=boxes[:40], test_inputs=boxes[40:])
        (inputs,) = prepare(whole, root, options={"to_float": False}).probe(3)
        return inputs

    probed = probe(1)
    assert (probed.shape, probed.dtype) == ((3, 5, 4), np.int64)
    assert set(probed.ravel().tolist()) == {0, 1}
    assert bool((np.diff(probed, axis=-1) >= 0).all())
    assert np.array_equal(probed, probe(7))


def test_made_up_floats_are_the_same_for_ever(root, tmp_path):
    """In the order in which they are drawn: a stored artifact is known by what it gives for them."""
    (inputs,) = prepare(npz(tmp_path), root).probe(2)
    assert (inputs.shape, inputs.dtype) == ((2, 1, 4, 4), np.float32)
    assert np.allclose(inputs.ravel()[:4], [1.7640524, 0.4001572, 0.978738, 2.2408931])


def test_made_up_numbers_of_one_axis_are_in_no_order(root, tmp_path):
    """One of each example: there is nothing to ascend."""
    numbers = np.arange(60)
    (inputs,) = prepare(
        npz(tmp_path, train_inputs=numbers[:40], test_inputs=numbers[40:]), root, options={"to_float": False}
    ).probe(8)
    assert inputs.tolist() == [0, 1, 1, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("name", ["evaluate_labels.npy", CONTENTS])
def test_a_pickle_in_the_cache_is_not_opened(root, tmp_path, name):
    """Loading one runs code, whoever wrote it there."""
    data = prepare(npz(tmp_path), root)
    np.save(data.folder / name, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle"):
        (data.evaluation_labels if "labels" in name else data.evaluation_contents)()


def test_made_up_tokens_ascend(root, tmp_path):
    """They are zeros and ones, of as many rows as are wanted; nothing of one axis is sorted."""
    tokens = np.arange(60 * 20).reshape(60, 20)
    (inputs,) = prepare(
        npz(tmp_path, train_inputs=tokens[:40], test_inputs=tokens[40:]), root, options={"to_float": False}
    ).probe(3)
    assert inputs.shape == (3, 20)
    assert set(inputs.ravel().tolist()) == {0, 1}
    assert bool((np.diff(inputs, axis=-1) >= 0).all())


def test_what_was_kept_before_contents_were_has_none(root, tmp_path):
    """Examples are then known by their ids alone; else by what they hold."""
    data = prepare(npz(tmp_path), root)
    assert len(data.evaluation_contents()) == 20
    (data.folder / CONTENTS).unlink()
    assert data.evaluation_contents() is None


def test_a_number_that_somebody_wrote_is_not_cut(root, tmp_path):
    """As the default is where a split has no more."""
    request = npz(tmp_path)
    assert not request.calibrate_by_default
    with pytest.raises(DataError, match="samples: 99 were asked for, there are 40"):
        prepare(request, root, calibrate_samples=99)
    assert len(prepare(request, root, calibrate_samples=99, calibrate_by_default=True).calibration()[0]) == 40


def test_a_progress_is_told_at_each_step(root, tmp_path):
    """It rises to the end of what is kept."""
    told = []
    prepare_data(npz(tmp_path), root, progress=lambda text, share: told.append((text.split()[0], share)))
    assert told == [("read", 0.1), ("compare", 0.6), ("keep", 0.8)]
