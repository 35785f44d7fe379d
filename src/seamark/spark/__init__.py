"""What knows Spark's internals and no running job: sessions, plans, jars, Java, Hadoop files.

`spark_versions.py` knows what differs between Sparks; `java/` is what runs in Spark's JVM.
"""
