"""Drains a query: its sources give nothing more, and its watermark goes to the end of time, so that
every window that is open closes.

Spark has no call for it. Its `MicroBatchExecution` plans each batch under a lock, from a map of its
sources: under that lock each source is wrapped into one that never moves on, and later, while no
batch is planned and not committed, the watermark is raised. A batch with the raised watermark
therefore reads no row; one that it read would be late, and lost. `savepoints/taking.py` says in
which order.
"""

from __future__ import annotations

import functools
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql.streaming import StreamingQuery

from seamark.checkpoint.drained import raised
from seamark.model.errors import UserError

_DRAIN = """
import java.lang.reflect.Field;
import java.util.HashMap;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SparkDataStream;
import org.apache.spark.sql.execution.streaming.runtime.AvailableNowDataStreamWrapper;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecutionContext;
import org.apache.spark.sql.execution.streaming.runtime.SerializedOffset;
import org.apache.spark.sql.execution.streaming.runtime.WatermarkPropagator;

public final class SeamarkDrain {
  public static final class Held extends AvailableNowDataStreamWrapper {
    private final SeamarkDrain drain;

    public Held(SparkDataStream source, SeamarkDrain drain) {
      super(source);
      this.drain = drain;
    }

    public Offset latestOffset(Offset start, ReadLimit limit) {
      if (start == null || !this.drain.another) return start;
      String json = start.json().trim();
      if (!isText(json)) return start;
      this.drain.another = false;
      return new SerializedOffset(json + " ");  // the same place, and Spark takes it for another
    }

    public Offset reportLatestOffset() { return null; }
  }

  /** Whether an offset may have a blank at its end; a bare number may not. */
  static boolean isText(String json) { return json.startsWith("{") || json.startsWith("["); }

  private MicroBatchExecution stream;
  private boolean another;
  private scala.collection.immutable.Map sources;

  /** From now on no batch is planned that reads a row. */
  public void hold(Object stream) {
    this.stream = (MicroBatchExecution) stream;
    this.stream.awaitProgressLock().lock();
    try {
      this.sources = this.stream.uniqueSources();
      HashMap held = new HashMap();
      scala.collection.Iterator each = this.sources.iterator();
      while (each.hasNext()) {
        scala.Tuple2 one = (scala.Tuple2) each.next();
        held.put(new Held((SparkDataStream) one._1(), this), one._2());
      }
      this.stream.uniqueSources_$eq((scala.collection.immutable.Map)
          scala.collection.immutable.Map$.MODULE$.from(
              scala.jdk.javaapi.CollectionConverters.asScala((java.util.Map) held)));
    } finally {
      this.stream.awaitProgressLock().unlock();
    }
  }

  /** Let the sources go on. */
  public void release() {
    this.stream.awaitProgressLock().lock();
    try {
      this.stream.uniqueSources_$eq(this.sources);
    } finally {
      this.stream.awaitProgressLock().unlock();
    }
  }

  public long watermark() { return this.stream.watermarkTracker().currentWatermark(); }

  /** Raise the watermark of the batches to come; but not while a batch is planned that is not
   *  committed: it would be committed with this watermark. Then wait for its end, a moment. */
  public String raiseTo(long watermark) throws Exception {
    this.stream.awaitProgressLock().lock();
    try {
      if (!this.stream.isActive()) return "ended";
      if (!this.stream.offsetLog().getLatestBatchId().equals(
          this.stream.commitLog().getLatestBatchId())) {
        this.stream.awaitProgressLockCondition().await(100L, TimeUnit.MILLISECONDS);
        return "busy";
      }
      // Spark asks the plan of the batch before whether there is work without rows. A query that
      // has run none since its start has no plan to ask.
      MicroBatchExecutionContext last =
          (MicroBatchExecutionContext) this.stream.getLatestExecutionContext();
      this.another = last.executionPlan() == null && last.previousContext().isEmpty();
      scala.collection.Iterator offsets = last.startOffsets().valuesIterator();
      boolean can = !this.another || !offsets.hasNext();
      while (offsets.hasNext()) can |= isText(((Offset) offsets.next()).json().trim());
      if (!can) return "no plan";
      Field known = MicroBatchExecution.class.getDeclaredField("watermarkPropagator");
      known.setAccessible(true);
      // It has worked out the next batch's watermark already, to see whether there is work for it.
      ((WatermarkPropagator) known.get(this.stream)).purge(Long.MAX_VALUE);
      this.stream.watermarkTracker().setWatermark(watermark);
      return "raised";
    } finally {
      this.stream.awaitProgressLock().unlock();
    }
  }
}
"""


class Drain:
    """The drain of one running query; raises UserError if this version of Spark has not what it
    takes."""

    def __init__(self, jvm: Any, query: StreamingQuery) -> None:
        self._stream = query._jsq.streamingQuery()
        self._name = query.name
        try:
            self._java = _drain_class(jvm).newInstance()
        except (Py4JError, TypeError) as error:
            raise UserError(
                f"job {query.name}: it cannot be drained: this version of Spark does not let its "
                f"sources be held ({error})"
            ) from None

    def hold_sources(self) -> None:
        """From now on no epoch is planned that reads a row; one that is planned already runs."""
        self._java.hold(self._stream)

    def release_sources(self) -> None:
        """Undo `hold_sources`."""
        self._java.release()

    def raise_watermark(self) -> bool:
        """Raise the watermark for the epochs to come; False if an epoch is under way, and nothing
        is done. The sources must be held, and what they gave be in ended epochs. Raises UserError
        if the query has ended, or if Spark would close nothing: no epoch has run since the start,
        and none can be made."""
        said = str(self._java.raiseTo(raised(int(self._java.watermark()))))
        if said == "ended":
            raise UserError(f"job {self._name} has ended before it was drained")
        if said == "no plan":
            raise UserError(
                f"job {self._name}: it cannot be drained yet: it has run no epoch since its start, "
                "and Spark closes windows only after one. Drain it when it has read a row, or stop "
                "it without --drain"
            )
        return said == "raised"


@functools.lru_cache(maxsize=1)
def _drain_class(jvm: Any) -> Any:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_DRAIN)
    return compiler.getClassLoader().loadClass("SeamarkDrain")
