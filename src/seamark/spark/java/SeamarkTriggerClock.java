import java.lang.reflect.Field;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution;
import org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor;

/**
 * The clock that Spark's triggers wait for (run/checkpoint_trigger.py), which can be woken.
 *
 * <p>It is put in by a thread of its own, in the JVM and begun before the query: the stream thread
 * takes a tenth of a second from making its executor to its first wait for the clock, from which
 * nothing could wake it. An interrupt is how Spark ends the thread at a stop; it runs no trigger
 * after it.
 */
public final class SeamarkTriggerClock extends SeamarkSearch
    implements org.apache.spark.util.Clock {
  private boolean woken;

  public long getTimeMillis() { return System.currentTimeMillis(); }
  public long nanoTime() { return System.nanoTime(); }
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

  protected boolean take(MicroBatchExecution stream, long deadline) throws Exception {
    Object executor = stream.triggerExecutor();
    if (executor == null) return false;
    Field clock = ProcessingTimeExecutor.class.getDeclaredField("clock");
    clock.setAccessible(true);
    clock.set(executor, this);
    return true;
  }
}
