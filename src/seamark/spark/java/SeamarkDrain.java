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

/** Holds the sources of a query and raises its watermark (run/drain.py). */
public final class SeamarkDrain {
  public static final class Held extends AvailableNowDataStreamWrapper {
    private final SeamarkDrain drain;
    private final Runnable before;

    public Held(SparkDataStream source, Runnable before, SeamarkDrain drain) {
      super(source);
      this.before = before;
      this.drain = drain;
    }

    public Offset latestOffset(Offset start, ReadLimit limit) {
      if (this.before != null) this.before.run();
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
        SparkDataStream source = (SparkDataStream) one._1();
        Runnable before = source instanceof Runnable ? (Runnable) source : null;
        if (source instanceof AvailableNowDataStreamWrapper) {  // SeamarkIntake's
          source = ((AvailableNowDataStreamWrapper) source).delegate();
        }
        held.put(new Held(source, before, this), one._2());
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
