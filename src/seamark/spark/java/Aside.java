/*
 * Runs what Spark's tasks run on a thread of the driver's own JVM, which a running stream's tasks are
 * to come before: Java has no priorities of threads on Linux, so it tells the thread's number there,
 * and state/rows.py lowers that thread's priority. And it rests: cores share their caches, their
 * memory and often their clock, so one more that is busy all the time slows down the others, whatever
 * its priority.
 */
package seamark;

import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.concurrent.locks.LockSupport;

import org.apache.spark.api.java.function.FlatMapFunction;

public class Aside extends Thread {
  /** How long it works before it rests, half as long as it has worked. */
  static final long TURN_NS = 10000000L;

  final FlatMapFunction function;
  final Iterator input;
  final ArrayList rows = new ArrayList();
  Exception failure;
  Error error;
  int number = -1;
  long turnSince = System.nanoTime();

  public Aside(FlatMapFunction function, Iterator input) {
    super("seamark-aside");
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

  /** Called by what runs on such a thread as often as it can, and on others to no effect. */
  static void restIfDue() {
    if (Thread.currentThread() instanceof Aside) ((Aside) Thread.currentThread()).rest();
  }

  void rest() {
    long worked = System.nanoTime() - this.turnSince;
    if (worked < TURN_NS) return;
    LockSupport.parkNanos(worked / 2);
    this.turnSince = System.nanoTime();
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
