"""The dashboard: a server of its own that shows every job of a storage in a browser.

`server.py` runs it and `routes.py` has its paths, which are those of a driver (`rest/`) for all
jobs. `stored_jobs.py` is what the storage tells, `drivers.py` asks those that live,
`shared_pages.py` makes each page once for all browsers, `answers.py` sends it, `protection.py` says
who may do what.
The front end is in `static/`: plain ES modules, no build (docs/adr has the choices).
"""
