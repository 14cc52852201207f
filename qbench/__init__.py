"""qbench: decide which int8 neural network to ship on CPUs.

The stages, in the order in which data passes through them:

    suite       YAML text -> Suite
    plan        Suite -> Plan: variants, cases, skips with reasons
    train       built-in + training split -> fp32 weights, through the cache; resumable
    build       variant -> Artifact, through a content-addressed cache
    evaluate    artifact + data set -> predictions of every example
    score       predictions -> a score with its interval, and the paired change against fp32
    measure     artifact + threads -> samples of latency
    record      all that is known of a case <-> one JSON line
    run         the story: plan, build, evaluate, measure, record
    compare     baseline + contender records -> deltas with intervals
    report      records -> tables, plots, one HTML file
    gate        deltas + policy -> verdicts and an exit code

Beside them ``qbench.onnx``: an ONNX file -> int8, in four steps.
"""

__version__ = "0.1.0"
