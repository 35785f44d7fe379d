import java.lang.reflect.Field;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution;
import org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor;
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.StreamingQueryManager;

/**
 * The clock that Spark's triggers wait for (checkpoint_trigger.py), which can be woken.
 *
 * <p>It is put in by a thread of its own, in the JVM and begun before the query: the stream thread
 * takes a tenth of a second from making its executor to its first wait for the clock, from which
 * nothing could wake it. An interrupt is how Spark ends the thread at a stop; it runs no trigger
 * after it.
 */
public final class SeamarkTriggerClock implements org.apache.spark.util.Clock, Runnable {
  private StreamingQueryManager queries;
  private String location;
  private volatile String problem = "";
  private boolean woken;

  public long getTimeMillis() { return System.currentTimeMillis(); }
  public long nanoTime() { return System.nanoTime(); }
  public String problem() { return problem; }
  public synchronized void wake() { woken = true; notifyAll(); }

  public synchronized long waitTillTime(long target) {
    long left = target - System.currentTimeMillis();
    while (!woken && left > 0) {
      try {
        wait(left);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        break;
      }
      left = target - System.currentTimeMillis();
    }
    woken = false;
    return System.currentTimeMillis();
  }

  /** `location` is the query's checkpoint: it may have no name. */
  public void putInto(StreamingQueryManager queries, String location) {
    this.queries = queries;
    this.location = location;
    Thread thread = new Thread(this, "seamark-clock");
    thread.setDaemon(true);
    thread.start();
  }

  public void run() {
    long deadline = System.nanoTime() + 120L * 1000000000L;
    try {
      while (System.nanoTime() < deadline) {
        StreamingQuery[] active = queries.active();
        for (int i = 0; i < active.length; i++) {
          if (!(active[i] instanceof StreamingQueryWrapper)) continue;
          Object stream = ((StreamingQueryWrapper) active[i]).streamingQuery();
          if (stream instanceof MicroBatchExecution
              && this.isHere(((MicroBatchExecution) stream).resolvedCheckpointRoot())) {
            Object executor = ((MicroBatchExecution) stream).triggerExecutor();
            if (executor != null) {
              Field clock = ProcessingTimeExecutor.class.getDeclaredField("clock");
              clock.setAccessible(true);
              clock.set(executor, this);
              return;
            }
          }
        }
        Thread.sleep(1L);
      }
    } catch (Throwable e) {
      problem = e.toString();
    }
  }

  /** Spark qualifies the location that it is given; its path stays. */
  private boolean isHere(String root) {
    java.net.URI here = new org.apache.hadoop.fs.Path(this.location).toUri();
    java.net.URI there = new org.apache.hadoop.fs.Path(root).toUri();
    return here.getPath().equals(there.getPath()) && (here.getAuthority() == null
        || here.getAuthority().equals(there.getAuthority()));
  }
}
