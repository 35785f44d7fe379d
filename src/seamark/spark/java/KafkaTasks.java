/*
 * The writing half of a task in real time whose rows need no Python: run/jvm_writer.py says
 * when, and what the driver gives and gets. sinks/kafka/writer.py does the same in Python.
 */
package seamark;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.protocol.Errors;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.execution.streaming.sources.PackedRowCommitMessage;

/** Makes a run's writers; `job` is JSON (`run/jvm_writer.py: JvmWriter`). */
public class KafkaTasks implements StreamingDataWriterFactory {
  final String job;

  public KafkaTasks(String job) {
    this.job = job;
  }

  public DataWriter createWriter(int partition, long task, long batch) {
    try {
      ObjectMapper json = new ObjectMapper();
      Map job = (Map) json.readValue(this.job, Map.class);
      String order = TaskContext.get().getLocalProperty((String) job.get("order"));
      return new KafkaTask(job, (Map) json.readValue(order, Map.class), partition);
    } catch (IOException e) {
      throw new RuntimeException(e);
    }
  }
}

/** One task attempt: sends rows as they come; `commit` flushes, and leaves transactions open. */
class KafkaTask implements DataWriter {
  final long startedMs = System.currentTimeMillis();
  final Map job;
  final Map order;
  final int partition;
  final KafkaRows[] sinks;

  KafkaTask(Map job, Map order, int partition) {
    this.job = job;
    this.order = order;
    this.partition = partition;
    List sinks = (List) job.get("sinks");
    this.sinks = new KafkaRows[sinks.size()];
    for (int n = 0; n < this.sinks.length; n++) {
      this.sinks[n] = new KafkaRows((Map) sinks.get(n));
    }
  }

  public void write(Object record) throws IOException {
    InternalRow row = (InternalRow) record;
    if (this.sinks.length == 1) {
      this.write(this.sinks[0], row);
      return;
    }
    for (int n = 0; n < this.sinks.length; n++) {
      KafkaRows sink = this.sinks[n];
      if (!row.isNullAt(n)) this.write(sink, row.getStruct(n, sink.columns.length));
    }
  }

  void write(KafkaRows sink, InternalRow row) throws IOException {
    long begun = System.nanoTime();
    try {
      sink.write(row, this.order);
    } catch (Exception e) {
      throw this.failed(sink, e);
    }
    sink.writeNs += System.nanoTime() - begun;
  }

  /** The failure of a checkpoint, in the words by which run/failures.py knows one. */
  IOException failed(KafkaRows sink, Exception e) {
    String why = e instanceof Refused ? e.getMessage() : sink.explained(e);
    return new IOException(
        this.job.get("error") + ": sink '" + sink.sink.get("uid") + "': " + why, e);
  }

  public WriterCommitMessage commit() throws IOException {
    HashMap parts = new HashMap();
    for (int n = 0; n < this.sinks.length; n++) {
      KafkaRows sink = this.sinks[n];
      if (sink.lease == null) continue;
      try {
        parts.put(sink.sink.get("uid"), sink.prepareCommit(this.order));
      } catch (Exception e) {
        throw this.failed(sink, e);
      }
    }
    HashMap report = new HashMap();
    report.put("epoch", this.order.get("epoch"));
    report.put("partition", Integer.valueOf(this.partition));
    report.put("attempt", Integer.valueOf(TaskContext.get().attemptNumber()));
    report.put("started_at", Double.valueOf(this.startedMs / 1e3));
    report.put("ended_at", Double.valueOf(System.currentTimeMillis() / 1e3));
    report.put("sinks", parts);
    // A class of Spark's: the driver's class loader has none of ours.
    return new PackedRowCommitMessage(new InternalRow[] {
      new GenericInternalRow(new Object[] {new ObjectMapper().writeValueAsBytes(report)})
    });
  }

  /** Leaves transactions open, for the driver to find: it may have learned of them. */
  public void abort() {
    for (int n = 0; n < this.sinks.length; n++) this.sinks[n].giveUp(this.order);
  }

  public void close() {
    this.abort();
  }
}

/** A row is refused, or was not delivered. */
class Refused extends Exception {
  Refused(String why) {
    super(why);
  }
}

/** One sink's rows in one task attempt. */
class KafkaRows {
  final Map sink;
  final String[] columns;
  final long[] factors;
  final long headerKey = RowHash.factor("key");
  final long headerValue = RowHash.factor("value");
  Lease lease;
  KafkaProducers pool;
  long rows;
  long bytes;
  long writeNs;
  // Filled by the producer's own thread.
  final HashMap targets = new HashMap();
  long acknowledged;
  long failures;
  volatile Exception failure;

  KafkaRows(Map sink) {
    this.sink = sink;
    this.columns = (String[]) ((List) sink.get("columns")).toArray(new String[0]);
    this.factors = new long[this.columns.length];
    for (int i = 0; i < this.factors.length; i++) this.factors[i] = RowHash.factor(this.columns[i]);
  }

  void write(InternalRow row, Map order) throws Exception {
    if (this.lease == null) {
      this.pool = KafkaProducers.of(this.sink);
      Lease lease = this.pool.take(
          KafkaProducers.ofInt(order, "epoch"), KafkaProducers.ofInt(order, "settled_epoch"));
      this.lease = lease;
      if (this.pool.transactional()) lease.producer.beginTransaction();
    }
    if (this.failure != null) throw this.undelivered();
    Object[] values = new Object[this.columns.length];
    byte[] key = null;
    byte[] value = null;
    Integer partition = null;
    RecordHeaders headers = null;
    for (int i = 0; i < values.length; i++) {
      if (row.isNullAt(i)) continue;
      String column = this.columns[i];
      if (column.equals("partition")) {
        partition = Integer.valueOf(row.getInt(i));
      } else if (column.equals("headers")) {
        headers = this.headers(row.getArray(i));
        values[i] = headers;
      } else {
        byte[] data = row.getBinary(i);
        values[i] = data;
        this.bytes += data.length;
        if (column.equals("key")) key = data;
        else value = data;
      }
    }
    if (partition != null) this.check(partition.intValue());
    this.bytes += 4L * values.length;
    this.lease.producer.send(
        new ProducerRecord((String) this.sink.get("topic"), partition, key, value, headers),
        new Sent(this, this.hash(values)));
    this.rows++;
  }

  /** As a reader finds the row: without the wish for a partition, and null headers are none. */
  long hash(Object[] values) {
    long sum = 0;
    for (int i = 0; i < values.length; i++) {
      if (this.columns[i].equals("partition")) continue;
      long hash = this.columns[i].equals("headers")
          ? this.hash((RecordHeaders) values[i]) : RowHash.ofBytes((byte[]) values[i]);
      sum += hash * this.factors[i];
    }
    return RowHash.avalanche(sum);
  }

  long hash(RecordHeaders headers) {
    if (headers == null) return RowHash.list(0, 0);
    org.apache.kafka.common.header.Header[] all = headers.toArray();
    long sum = 0;
    for (int i = 0; i < all.length; i++) {
      long key = RowHash.ofBytes(all[i].key().getBytes(StandardCharsets.UTF_8));
      long value = RowHash.ofBytes(all[i].value());
      sum += RowHash.element(
          RowHash.struct(key * this.headerKey + value * this.headerValue), i + 1);
    }
    return RowHash.list(sum, all.length);
  }

  RecordHeaders headers(ArrayData array) throws Refused {
    RecordHeaders headers = new RecordHeaders();
    this.bytes += 8L * array.numElements();
    for (int i = 0; i < array.numElements(); i++) {
      InternalRow header = array.isNullAt(i) ? null : array.getStruct(i, 2);
      byte[] key = header == null || header.isNullAt(0) ? null : header.getUTF8String(0).getBytes();
      String text = key == null ? null : new String(key, StandardCharsets.UTF_8);
      if (key == null || !Arrays.equals(text.getBytes(StandardCharsets.UTF_8), key)) {
        throw new Refused("WriteRefusedError: sink `" + this.sink.get("uid") + "`: "
            + this.sink.get("bad_header") + this.sink.get("set_aside"));
      }
      byte[] value = header.isNullAt(1) ? null : header.getBinary(1);
      headers.add(text, value);
      this.bytes += key.length + (value == null ? 0 : value.length);
    }
    return headers;
  }

  void check(int partition) throws Refused {
    String topic = (String) this.sink.get("topic");
    if (partition >= this.lease.partitions) {
      this.lease.partitions = this.lease.producer.partitionsFor(topic).size();
    }
    if (partition < 0) {
      throw this.refused(1, "the column `partition` is " + partition
          + "; give a partition from 0, or null to have it chosen by the key");
    }
    if (partition >= this.lease.partitions) {
      throw this.refused(1, "the column `partition` is " + partition + ", and the topic has "
          + this.lease.partitions + " partitions, from 0 on");
    }
  }

  Refused refused(long count, String why) {
    return new Refused("WriteRefusedError: sink `" + this.sink.get("uid") + "`: "
        + (count == 1 ? "1 row was" : count + " rows were") + " refused by topic '"
        + this.sink.get("topic") + "': " + why + this.sink.get("set_aside"));
  }

  Refused undelivered() {
    return this.refused(this.failures, this.explained(this.failure));
  }

  /** Kafka's words, and Seamark's remedy. */
  String explained(Throwable e) {
    String remedy = (String)
        ((Map) this.sink.get("remedies")).get(String.valueOf((int) Errors.forException(e).code()));
    String cause = e.getCause() == null ? "" : " (" + e.getCause().getMessage() + ")";
    return e.getClass().getSimpleName() + ": " + e.getMessage() + cause
        + (remedy == null ? "" : "; " + remedy);
  }

  /** Called on the producer's thread, or on the task's for a row that is refused at once. */
  synchronized void sent(RecordMetadata at, Exception e, long hash) {
    if (e != null) {
      this.failures++;
      if (this.failure == null) this.failure = e;
      return;
    }
    if (this.acknowledged++ == 0) KillPoint.reached("transaction-begun");
    Integer partition = Integer.valueOf(at.partition());
    long[] sums = (long[]) this.targets.get(partition);
    if (sums == null) {
      sums = new long[3];
      this.targets.put(partition, sums);
    }
    sums[0]++;
    sums[1] += hash;
    sums[2] += hash * hash;
  }

  /** Returns once the broker has every row, with the transaction's name; it stays open. */
  synchronized Map report(long begun) {
    HashMap targets = new HashMap();
    HashMap rows = new HashMap();
    Object[] partitions = this.targets.keySet().toArray();
    for (int i = 0; i < partitions.length; i++) {
      long[] sums = (long[]) this.targets.get(partitions[i]);
      String hash = String.format("%016x%016x",
          new Object[] {Long.valueOf(sums[1]), Long.valueOf(sums[2])});
      targets.put(this.sink.get("topic") + "/" + partitions[i],
          new Object[] {Long.valueOf(sums[0]), hash});
      rows.put(partitions[i].toString(), Long.valueOf(sums[0]));
    }
    HashMap report = new HashMap();
    report.put("rows", Long.valueOf(this.rows));
    report.put("data_bytes", Long.valueOf(this.bytes));
    report.put("write_s", Double.valueOf(this.writeNs / 1e9));
    report.put("flush_s", Double.valueOf((System.nanoTime() - begun) / 1e9));
    report.put("targets", targets);
    if (this.pool.transactional()) {
      HashMap transaction = new HashMap();
      transaction.put("transactional_id", this.lease.id);
      transaction.put("producer_id", Long.valueOf(this.lease.producerId));
      transaction.put("producer_epoch", Integer.valueOf(this.lease.epoch));
      transaction.put("rows", rows);
      report.put("transaction", transaction);
    }
    return report;
  }

  Map prepareCommit(Map order) throws Exception {
    long begun = System.nanoTime();
    this.lease.producer.flush();
    if (this.failure != null) throw this.undelivered();
    Map report;
    synchronized (this) {
      if (this.acknowledged != this.rows) {
        throw new Refused("WriteRefusedError: sink `" + this.sink.get("uid") + "`: " + this.rows
            + " rows were sent, but " + this.acknowledged
            + " acknowledged: a row may have been written twice, so the epoch is not prepared");
      }
      if (this.pool.transactional()) this.lease.identify();
      report = this.report(begun);
    }
    Lease lease = this.lease;
    this.lease = null;
    this.pool.flushed(lease, KafkaProducers.ofInt(order, "settled_epoch"));
    KillPoint.reached("transaction-flushed");
    return report;
  }

  void giveUp(Map order) {
    Lease lease = this.lease;
    this.lease = null;
    if (lease != null) this.pool.giveUp(lease, KafkaProducers.ofInt(order, "settled_epoch"));
  }
}

/** Takes the broker's answer for one row. */
class Sent implements Callback {
  final KafkaRows rows;
  final long hash;

  Sent(KafkaRows rows, long hash) {
    this.rows = rows;
    this.hash = hash;
  }

  public void onCompletion(RecordMetadata at, Exception e) {
    this.rows.sent(at, e, this.hash);
  }
}

/** The failpoints of a task (model/failpoints.py), in the JVM. */
class KillPoint {
  static final String ARMED = System.getenv("SEAMARK_FAILPOINT");
  static int times;

  static synchronized void reached(String name) {
    if (ARMED == null || !ARMED.split("[:@]")[0].equals(name)) return;
    boolean stops = ARMED.endsWith("@stop");
    String[] parts = ARMED.split("@")[0].split(":");
    if (++times != (parts.length > 1 ? Integer.parseInt(parts[1]) : 1)) return;
    System.err.println("Seamark " + (stops ? "stops" : "dies") + " at failpoint " + name);
    try {
      new ProcessBuilder(new String[] {
        "kill", stops ? "-STOP" : "-KILL", String.valueOf(ProcessHandle.current().pid())
      }).start().waitFor();
    } catch (Exception e) {
      Runtime.getRuntime().halt(137);
    }
  }
}
