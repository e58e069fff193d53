"""ALFWorld's text engine, rebuilt for speed on the planner's C library.

Every trace equals the stock engine's. Read in this order: `facts` (a fact set is one
integer), `translator` (one PDDL problem as data), `grammar` (the text grammar as data,
and compiled into closures over facts), `library` (private copies of the planner) and
`game` (the graph of visited states). A FastEngine (engine.py) is one player in that
graph.
"""
