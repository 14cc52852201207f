"""A run on the nodes of a Ray cluster: what travels, where it may run, and what becomes of it where a node is lost.

transfer  values with the cache's files that they name, taken to another machine
nodes     what a node says of itself; which nodes are alike, which are refused
schedule  which node works next; a machine that measures does nothing else
agent     on a node: starts the child processes that it is asked for
ray_load  on a node: what Ray's own processes take while it measures; core_keeper keeps them off its cores
reach     whether a cluster answers, with its TLS and tokens
engine    Ray itself: connecting, a cluster on this machine
fleet     the nodes of a run, as places where child processes run
opening   opens the fleet of a run, and ends with everything that it had on the nodes
"""
