"""Read in the driver, from the JVM: the Hadoop settings by which workers reach HDFS and S3.

Workers have no JVM to ask; `file_systems/` uses what this returns. Only what somebody has set is
taken, not Hadoop's own defaults.
"""

from __future__ import annotations

from xml.etree import ElementTree

from pyspark.sql import SparkSession

from seamark.file_systems import HadoopSettings

_PREFIXES = ("fs.", "dfs.", "hadoop.security.")


def hadoop_settings(spark: SparkSession) -> HadoopSettings:
    """Return the session's settings of file systems: of ``core-site.xml``, ``hdfs-site.xml``,
    ``spark.hadoop.*`` and the session's own configuration."""
    jvm = spark._jvm
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    # One call for all of them: each call into the JVM takes a third of a millisecond.
    text = jvm.java.io.StringWriter()
    configuration.writeXml(text)
    found = {}
    for entry in ElementTree.fromstring(text.toString()).iter("property"):
        name, value = entry.findtext("name", ""), entry.findtext("value", "")
        sources = [source.text or "" for source in entry.iter("source")]
        if not name.startswith(_PREFIXES) or (sources and sources[-1].endswith("-default.xml")):
            continue
        if "${" in value:  # refers to another setting, or to the environment
            value = str(configuration.get(name) or "")
        found[name] = value
    return HadoopSettings(found)
