"""Jobs as a user writes them, and the demo that kills them.

`clicks_embedded.py` needs nothing but this package; `clicks_kafka.py` a Kafka broker. `demo.py`
runs either of them, with the input, the expectation and the readers of `workload.py`.
"""
