/*
 * Runs what Spark's tasks run on a thread of the driver's own JVM, which a running stream's tasks are
 * to come before: Java has no priorities of threads on Linux, so it tells the thread's number there,
 * and state_rows.py lowers that thread's priority.
 */
package tidemark;

import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Iterator;

import org.apache.spark.SparkExecutorInfo;
import org.apache.spark.SparkStatusTracker;
import org.apache.spark.api.java.function.FlatMapFunction;

public class Aside extends Thread {
  /** Between an epoch's stages no task runs for a moment. */
  static final long GAP_NS = 50000000L;

  final FlatMapFunction function;
  final Iterator input;
  final SparkStatusTracker spark;
  final ArrayList rows = new ArrayList();
  long ranSince;
  long credit;
  long tasksSeen = Long.MIN_VALUE / 2;
  Exception failure;
  Error error;
  int number = -1;

  public Aside(FlatMapFunction function, Iterator input, SparkStatusTracker spark) {
    super("tidemark-aside");
    this.setDaemon(true);
    this.function = function;
    this.input = input;
    this.spark = spark;
  }

  public void run() {
    this.tell();
    this.ranSince = System.nanoTime();
    try {
      Iterator found = this.function.call(this.input);
      while (found.hasNext()) this.rows.add(found.next());
    } catch (Exception e) {
      this.failure = e;
    } catch (Error e) {
      this.error = e;
    }
  }

  /** Waits, on such a thread, while Spark runs tasks, but in all no longer than the thread has run. */
  static void giveWay() throws InterruptedException {
    if (Thread.currentThread() instanceof Aside) ((Aside) Thread.currentThread()).rest();
  }

  void rest() throws InterruptedException {
    long now = System.nanoTime();
    this.credit += now - this.ranSince;
    if (this.runningTasks() > 0) this.tasksSeen = now;
    while (this.credit > 0 && now - this.tasksSeen < GAP_NS) {
      Thread.sleep(5);
      long later = System.nanoTime();
      this.credit -= later - now;
      now = later;
      if (this.runningTasks() > 0) this.tasksSeen = now;
    }
    this.ranSince = now;
  }

  int runningTasks() {
    int running = 0;
    SparkExecutorInfo[] executors = this.spark.getExecutorInfos();
    for (int i = 0; i < executors.length; i++) running += executors[i].numRunningTasks();
    return running;
  }

  synchronized void tell() {
    try {
      this.number = Integer.parseInt(
          Files.readSymbolicLink(Paths.get("/proc/thread-self", new String[0])).getFileName().toString());
    } catch (Exception notLinux) {
      this.number = 0;
    }
    this.notifyAll();
  }

  /** The number of the running thread in the operating system, 0 if it does not say. */
  public synchronized int number() throws InterruptedException {
    while (this.number < 0) this.wait();
    return this.number;
  }

  /** What the function returned, when it has; what it threw is thrown here. */
  public ArrayList rows() throws Exception {
    this.join();
    if (this.failure != null) throw this.failure;
    if (this.error != null) throw this.error;
    return this.rows;
  }
}
