"""What is measured -> what is shipped, per model, threads and batch size; pure, and nothing else decides.

cases                the settings of a run, and what a case is
limits               each limit of the suite held against a case, once, for the decision and the gate
limit_text           what a decision says of that
qualify              which cases hold all of them, or may
judged               what a decision rests on: records, limits, the suite's rules, readers of what is stored
tested_change        the change of accuracy beside a verdict, with the limits that were tested
paired_times         how much longer one case takes than another, by the strongest evidence
objective            what is minimized: time, bytes, the first call, memory
accuracy_difference  how two variants differ on the same examples
tie                  what ties, in what is minimized and in accuracy
rank                 what is preferred among the tied
choose               filter, hold against fp32, rank
probability          how probable it is that the pick is the best
sureness             how often the answer would be chosen again, no oftener than noise allows
sensitivity          what would change the choice
reasons              why each other case is not it, and what told it from those that tie
decider              what would tell two apart that may both be the best
notes                doubts
not_timed            what leads on this machine and has no time on a host
names                variants and runtimes as a reader calls them
decision_type        what is decided of one setting
decision             one decision for each setting
headline             what to do
next_step            what would decide what is open
sentence             the answer: what to do, its figures and how sure it is, the same everywhere
text                 all that is said of a decision
json_text            decisions for a program
"""
