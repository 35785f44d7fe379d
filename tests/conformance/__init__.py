"""Each sink under the suite of `seamark.verify.conformance`; Kafka is in `integration/kafka`."""
