"""How much processes of one artifact differ on one machine: what is known before any is measured.

Standard deviations of natural logarithms, as recorded in fresh processes (``qbench/gating/traces``): ratios of two
copies of one artifact differ by 1.5 to 2.1 % from one process to the next, the time of one in undisturbed blocks by
1.5 %. No number of blocks inside one process shows it.
"""

from __future__ import annotations

# Of ln(one case / another) from one run to the next on one machine, beyond what a run's processes show of it: six
# quickstarts in a row on a quiet machine called one gain 1.476 [1.469, 1.482] to 1.492 [1.489, 1.495].
RUN_SPREAD = 0.008
# Of ln(one case / another), both timed in the same rounds, and of ln(time) in undisturbed blocks.
RATIO_SPREAD = 0.02
TIME_SPREAD = 0.015
# Each is worth so many processes that were seen.
FREEDOM = 6
