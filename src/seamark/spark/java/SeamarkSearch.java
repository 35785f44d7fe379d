import java.net.URI;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution;
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.StreamingQueryManager;

/** Waits, in a thread of its own, for the query with a checkpoint location: it may have no name. */
public abstract class SeamarkSearch implements Runnable {
  private StreamingQueryManager queries;
  private String location;
  private volatile String problem = "";

  public String problem() { return problem; }

  /** Called with the query, again until it answers true or the time of System.nanoTime is over. */
  protected abstract boolean take(MicroBatchExecution stream, long deadline) throws Exception;

  public void putInto(StreamingQueryManager queries, String location) {
    this.queries = queries;
    this.location = location;
    Thread thread = new Thread(this, this.getClass().getName());
    thread.setDaemon(true);
    thread.start();
  }

  public void run() {
    long deadline = System.nanoTime() + 120L * 1000000000L;
    try {
      while (System.nanoTime() < deadline) {
        StreamingQuery[] active = this.queries.active();
        for (int i = 0; i < active.length; i++) {
          if (!(active[i] instanceof StreamingQueryWrapper)) continue;
          Object stream = ((StreamingQueryWrapper) active[i]).streamingQuery();
          if (stream instanceof MicroBatchExecution
              && this.isHere(((MicroBatchExecution) stream).resolvedCheckpointRoot())
              && this.take((MicroBatchExecution) stream, deadline)) return;
        }
        Thread.sleep(1L);
      }
    } catch (Throwable e) {
      this.problem = e.toString();
    }
  }

  /** Spark qualifies the location that it is given; its path stays. */
  private boolean isHere(String root) {
    URI here = new Path(this.location).toUri();
    URI there = new Path(root).toUri();
    return here.getPath().equals(there.getPath()) && (here.getAuthority() == null
        || here.getAuthority().equals(there.getAuthority()));
  }
}
