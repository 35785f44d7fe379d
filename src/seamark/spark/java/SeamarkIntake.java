import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.SparkDataStream;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.execution.streaming.Source;
import org.apache.spark.sql.execution.streaming.runtime.AvailableNowDataStreamWrapper;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecutionContext;
import org.apache.spark.sql.execution.streaming.runtime.SerializedOffset;

/**
 * What a query's sources give to its next batch (epoch_work.py), and when: so many rows, nothing,
 * or a batch without rows.
 *
 * <p>A thread takes the lock under which Spark plans a batch, as soon as there is a query, and gives
 * it back when the sources are wrapped: before the first batch is planned.
 */
public final class SeamarkIntake extends SeamarkSearch {
  public static final class Taken extends AvailableNowDataStreamWrapper implements Runnable {
    private final SparkDataStream source;
    private final SeamarkIntake intake;
    private boolean asked = true;

    public Taken(SparkDataStream original, SparkDataStream source, SeamarkIntake intake) {
      super(original);
      this.source = source;
      this.intake = intake;
    }

    /** Also for SeamarkDrain, whose class loader does not know this class. */
    public void run() { if (!this.intake.atEnd) this.intake.awaitRelease(); }

    public Offset latestOffset(Offset start, ReadLimit limit) {
      this.run();
      Offset known = this.intake.committed(this.delegate());
      Offset next = this.next(known, start, limit);
      if (next == null || known != null && next.json().equals(known.json())) {
        this.intake.awaitRelease();
      }
      return next;
    }

    private Offset next(Offset known, Offset start, ReadLimit limit) {
      if (known == null) return this.newest(start, this.lower(limit));
      String json = known.json();
      String text = json.trim();
      // A bare number can have no blank at its end: such a source makes no batch without rows.
      boolean isText = text.startsWith("{") || text.startsWith("[");
      this.asked = !isText || !this.intake.paused || this.countsRows(limit);
      if (this.asked) {
        Offset next = this.newest(start, this.lower(limit));
        if (next == null || !next.json().trim().equals(text)) return next;
      }
      if (!isText || !this.intake.heartbeat) return known;
      // The same place, and Spark takes it for another.
      return new SerializedOffset(json.endsWith(" ") ? text : text + " ");
    }

    /** The user's own limit stands where it is lower, or is not one of rows. */
    private ReadLimit lower(ReadLimit limit) {
      long most = this.intake.paused ? 0L : this.intake.rows;
      if (most < 0L || !this.countsRows(limit)) return limit;
      if (limit instanceof ReadMaxRows && ((ReadMaxRows) limit).maxRows() <= most) return limit;
      return ReadLimit.maxRows(most);
    }

    private boolean countsRows(ReadLimit limit) {
      return limit instanceof ReadMaxRows || limit instanceof ReadAllAvailable
          && this.delegate().getClass().getName().startsWith("org.apache.spark.sql.kafka010.");
    }

    private Offset newest(Offset start, ReadLimit limit) {
      if (this.source instanceof SupportsAdmissionControl) {
        return ((SupportsAdmissionControl) this.source).latestOffset(start, limit);
      }
      if (this.source instanceof Source) {
        scala.Option found = ((Source) this.source).getOffset();
        return found.isEmpty() ? null : (Offset) found.get();
      }
      return ((MicroBatchStream) this.source).latestOffset();
    }

    public void prepareForTriggerAvailableNow() {
      if (this.source instanceof SupportsTriggerAvailableNow) {
        ((SupportsTriggerAvailableNow) this.source).prepareForTriggerAvailableNow();
      }
    }

    /** Spark's last act before it tells of a query's end; of the trigger `once`, the only one. */
    public void stop() {
      this.intake.awaitCommit();
      super.stop();
    }

    public Offset reportLatestOffset() {
      return this.asked && this.source instanceof SupportsAdmissionControl
          ? ((SupportsAdmissionControl) this.source).reportLatestOffset() : null;
    }
  }

  private MicroBatchExecution stream;
  private volatile boolean heartbeat;
  private volatile boolean paused;
  private volatile long rows = -1L;
  private volatile boolean atEnd;
  private volatile boolean attached;
  private boolean held;

  /** Whether the query's sources can be held. */
  public boolean isAttached() { return this.attached; }

  /** From now on `hold` lets batches with new rows pass: it holds the end of a bounded query. */
  public void holdAtEnd() { this.atEnd = true; }

  /** Holds the next batch until it is called with false: before Spark plans the batch. */
  public synchronized void hold(boolean held) {
    this.held = held;
    this.notifyAll();
  }

  // Not private: Janino would lose the lock in the method that it makes for the inner class.
  synchronized void awaitRelease() {
    try {
      while (this.held) this.wait();
    } catch (InterruptedException e) {
      // Spark takes its cause for a stop.
      throw new UncheckedIOException(new InterruptedIOException());
    }
  }

  /** Not for a query that has failed, or that somebody stops: Spark's thread takes no interrupt. */
  synchronized void awaitCommit() {
    try {
      while (this.held && this.stream.isActive() && this.stream.exception().isEmpty()) {
        this.wait(100L);
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  public void set(boolean heartbeat, boolean paused, long rows) {
    this.heartbeat = heartbeat;
    this.paused = paused;
    this.rows = rows;
  }

  /** The end of the last committed batch. */
  Offset committed(SparkDataStream source) {
    MicroBatchExecutionContext now =
        (MicroBatchExecutionContext) this.stream.getLatestExecutionContext();
    scala.Option found = now.startOffsets().get(source);
    return found.isEmpty() ? null : (Offset) found.get();
  }

  protected boolean take(MicroBatchExecution stream, long deadline) throws Exception {
    this.stream = stream;
    this.wrap(deadline);
    return true;
  }

  private void wrap(long deadline) throws Exception {
    this.stream.awaitProgressLock().lock();
    try {
      while (this.stream.uniqueSources().isEmpty()) {
        if (!this.stream.isActive() || System.nanoTime() > deadline) return;
        Thread.sleep(1L);
      }
      HashMap taken = new HashMap();
      scala.collection.Iterator each = this.stream.uniqueSources().iterator();
      while (each.hasNext()) {
        scala.Tuple2 one = (scala.Tuple2) each.next();
        SparkDataStream source = (SparkDataStream) one._1();
        SparkDataStream original = source instanceof AvailableNowDataStreamWrapper
            ? ((AvailableNowDataStreamWrapper) source).delegate() : source;
        taken.put(new Taken(original, source, this), one._2());
      }
      this.stream.uniqueSources_$eq((scala.collection.immutable.Map)
          scala.collection.immutable.Map$.MODULE$.from(
              scala.jdk.javaapi.CollectionConverters.asScala((java.util.Map) taken)));
      this.attached = true;
    } finally {
      this.stream.awaitProgressLock().unlock();
    }
  }
}
