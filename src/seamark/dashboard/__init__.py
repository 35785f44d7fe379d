"""The dashboard: a server of its own that shows every job of a storage in a browser.

`server.py` runs it. `routes.py` grants access and has the paths: a driver's (`rest/`), for all
jobs. `stored_jobs.py` reads the storage, `jobs.py` asks live drivers, `shared_pages.py` makes each
page once for all browsers and sends it. The front end is in `static/`: plain ES modules, no build.
"""
