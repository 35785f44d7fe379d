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

import org.apache.spark.api.java.function.FlatMapFunction;

public class Aside extends Thread {
  final FlatMapFunction function;
  final Iterator input;
  final ArrayList rows = new ArrayList();
  Exception failure;
  Error error;
  int number = -1;

  public Aside(FlatMapFunction function, Iterator input) {
    super("tidemark-aside");
    this.setDaemon(true);
    this.function = function;
    this.input = input;
  }

  public void run() {
    this.tell();
    try {
      Iterator found = this.function.call(this.input);
      while (found.hasNext()) this.rows.add(found.next());
    } catch (Exception e) {
      this.failure = e;
    } catch (Error e) {
      this.error = e;
    }
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
