"""Research tools: simulation, rate policies tried in virtual time, paper 2's placement, reproductions of the papers.

It may import everything; nothing of the product imports it but the table of commands (`headgate lab …`).
"""
