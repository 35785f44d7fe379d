"""Each sink under the suite of `tidemark.verify.conformance`; Kafka is in `integration/kafka`."""
