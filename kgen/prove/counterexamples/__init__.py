"""Small legal calls at which what had to be shown is wrong: whoever is refused sees why.

In: an obligation, or stores, that could not be shown. Out: an `Example`, or None.

- `world.py`: a call on small numbers; a typed value is computed there, number by number, in Python.
- `search.py`: tries worlds in an order that is the same everywhere, and makes what it finds simpler.
- `clashes.py`: likewise for stores that meet, leave a gap, or reach what another program reads.

What is found is true: it was walked through, by code that shares nothing with the polynomials. That
nothing is found proves nothing, and the message then says `kgen can't show that`. A model of z3 is walked
through here as well before anyone sees it.
"""
