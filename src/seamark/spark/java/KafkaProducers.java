/*
 * Warm producers of one sink in one JVM, for its tasks: the rules of sinks/kafka/producer_pool.py,
 * with Java's client.
 */
package seamark;

import java.lang.reflect.Field;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * With transactions: a producer serves one transaction, and an id is used again only once the
 * outcome of its last epoch is recorded. So a late end of one transaction never hits another.
 * Without: a producer serves one task after another. Thread-safe.
 */
public class KafkaProducers implements ThreadFactory {
  /** A waiting producer is closed at this age: it may outlive its job by that. */
  static final long OLDEST_S = 300;
  static final HashMap POOLS = new HashMap();
  static final ScheduledThreadPoolExecutor CHORES =
      new ScheduledThreadPoolExecutor(2, new KafkaProducers(null));
  static final String WORKER = worker();

  final Map sink;
  final ArrayDeque ready = new ArrayDeque();
  final ArrayDeque free = new ArrayDeque();  // oldest use first
  int made;
  int warming;
  boolean closed;

  KafkaProducers(Map sink) {
    this.sink = sink;
  }

  static String worker() {
    byte[] random = new byte[6];
    new SecureRandom().nextBytes(random);
    StringBuilder text = new StringBuilder();
    for (int i = 0; i < random.length; i++) {
      text.append(Integer.toHexString((random[i] & 255) | 256).substring(1));
    }
    return text.toString();
  }

  /** A daemon thread: an ending executor must not wait for an unreachable broker. */
  public Thread newThread(Runnable work) {
    Thread thread = new Thread(work, "seamark-kafka-producers");
    thread.setDaemon(true);
    return thread;
  }

  /** The JVM's pool for a sink as its driver describes it; closes those of older drivers. */
  static KafkaProducers of(Map sink) {
    synchronized (POOLS) {
      KafkaProducers pool = (KafkaProducers) POOLS.get(sink);
      if (pool != null) return pool;
      for (Iterator others = POOLS.values().iterator(); others.hasNext();) {
        KafkaProducers other = (KafkaProducers) others.next();
        if (other.sink.get("ids").equals(sink.get("ids"))
            && other.generation() <= ofInt(sink, "generation")) {
          other.close();
          others.remove();
        }
      }
      pool = new KafkaProducers(sink);
      POOLS.put(sink, pool);
      return pool;
    }
  }

  static int ofInt(Map of, String name) {
    return ((Number) of.get(name)).intValue();
  }

  int generation() {
    return ofInt(this.sink, "generation");
  }

  boolean transactional() {
    return ((Boolean) this.sink.get("transactional")).booleanValue();
  }

  /** A producer for one attempt in `epoch`; every epoch up to `settled` has a recorded outcome. */
  Lease take(int epoch, int settled) throws Exception {
    Lease lease;
    synchronized (this) {
      long half = TimeUnit.SECONDS.toNanos(ofInt(this.sink, "limit_s")) / 2;
      long until = System.nanoTime() + half;
      while (this.ready.isEmpty() && this.warming > 0 && System.nanoTime() < until) this.wait(50);
      lease = (Lease) this.ready.poll();
    }
    if (lease == null) lease = this.make(settled);
    lease.usedIn = epoch;
    return lease;
  }

  Lease make(int settled) {
    Lease lease = null;
    synchronized (this) {
      if (this.transactional()) {
        Lease oldest = (Lease) this.free.peek();
        if (oldest != null && oldest.usedIn <= settled) {
          lease = new Lease(((Lease) this.free.poll()).id);
        }
      }
      if (lease == null) {
        this.made++;
        lease = new Lease(this.sink.get("ids") + "-g" + this.generation() + "-" + WORKER + "-"
            + this.made);
      }
    }
    HashMap settings = new HashMap((Map) this.sink.get("settings"));
    if (this.transactional()) settings.put("transactional.id", lease.id);
    if (!settings.containsKey("client.id")) settings.put("client.id", "seamark-" + lease.id);
    lease.producer =
        new KafkaProducer(settings, new ByteArraySerializer(), new ByteArraySerializer());
    try {
      lease.partitions = lease.producer.partitionsFor((String) this.sink.get("topic")).size();
      if (this.transactional()) lease.producer.initTransactions();
    } catch (RuntimeException e) {
      lease.close();
      throw e;
    }
    return lease;
  }

  /** Takes a producer back after a good flush. Its transaction stays open, for the driver to end. */
  void flushed(Lease lease, int settled) {
    if (!this.transactional()) {
      this.keep(lease);
      return;
    }
    synchronized (this) {
      if (lease.epoch < ofInt(this.sink, "last_epoch")) this.free.add(lease);
    }
    this.giveUp(lease, settled);
  }

  /** Takes a producer back without ending its transaction, and makes the next one ready. */
  void giveUp(final Lease lease, final int settled) {
    final KafkaProducers pool = this;
    synchronized (this) {
      final boolean warm = this.transactional() && !this.closed;
      if (warm) this.warming++;
      CHORES.execute(new Runnable() {
        public void run() {
          try {
            lease.close();  // first: each takes up to `buffer.memory`
          } finally {
            if (warm) pool.warm(settled);
          }
        }
      });
    }
  }

  void warm(int settled) {
    Lease lease = null;
    try {
      lease = this.make(settled);
    } catch (RuntimeException e) {
      // The next task makes one itself, and fails with its own reason.
    }
    synchronized (this) {
      this.warming--;
      if (lease != null) this.keep(lease);
      this.notifyAll();
    }
  }

  synchronized void keep(final Lease lease) {
    if (this.closed) {
      lease.close();
      return;
    }
    this.ready.add(lease);
    final KafkaProducers pool = this;
    CHORES.schedule(new Runnable() {
      public void run() {
        synchronized (pool) {
          if (!pool.ready.remove(lease)) return;
        }
        lease.close();
      }
    }, OLDEST_S, TimeUnit.SECONDS);
  }

  synchronized void close() {
    this.closed = true;
    while (!this.ready.isEmpty()) ((Lease) this.ready.poll()).close();
  }
}

/** A producer, and the id of its one transaction. */
class Lease {
  final String id;
  KafkaProducer producer;
  int partitions;
  int usedIn = -1;
  long producerId = -1;
  short epoch = -1;

  Lease(String id) {
    this.id = id;
  }

  /** Learns the producer's identity at the broker, which Java's client tells to nobody. */
  void identify() throws Exception {
    Object manager = read(this.producer, KafkaProducer.class, "transactionManager");
    Object identity = read(manager, manager.getClass(), "producerIdAndEpoch");
    this.producerId = ((Long) read(identity, identity.getClass(), "producerId")).longValue();
    this.epoch = ((Short) read(identity, identity.getClass(), "epoch")).shortValue();
  }

  static Object read(Object of, Class kind, String name) throws Exception {
    Field field = kind.getDeclaredField(name);
    field.setAccessible(true);
    return field.get(of);
  }

  /**
   * Waits for nothing, sends nothing: with more patience Java's client aborts the transaction. A
   * closed producer keeps its buffers; the pool keeps the lease, for its id and in late chores.
   */
  void close() {
    KafkaProducer closing = this.producer;
    this.producer = null;
    closing.close(Duration.ZERO);
  }
}
