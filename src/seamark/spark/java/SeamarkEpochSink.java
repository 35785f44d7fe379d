import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BiFunction;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.execution.streaming.sources.PackedRowCommitMessage;
import org.apache.spark.sql.execution.streaming.sources.PackedRowWriterFactory$;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;
import org.apache.spark.sql.streaming.DataStreamWriter;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The end of a query in real-time mode (run/real_time.py): calls the driver's Python on Spark's
 * stream thread at the start of each epoch's tasks, and at their end, before Spark writes its logs.
 *
 * <p>Its rows are the tasks' reports, and a class of Spark's own collects them; or the job's rows,
 * and the writers of a `factory` send them and give the reports. Spark gives `commit` the rows of the attempts that have won, and calls it
 * only if every task has ended well: not for an epoch that a stop has cut off.
 */
public final class SeamarkEpochSink
    implements TableProvider, SupportsWrite, SupportsStreamingUpdateAsAppend, Write, StreamingWrite {
  private static final String KEY = "seamark.sink";
  private static final Map STARTING = new ConcurrentHashMap();
  private SparkContext context;
  private BiFunction begin;
  private BiFunction end;
  private String property;
  private StreamingDataWriterFactory factory;
  private StructType schema;

  /**
   * Starts the query with this sink. `begin` gets (epoch, number of partitions) and returns the text
   * of the tasks' local `property`; `end` gets (epoch, list of reports). An exception of theirs
   * fails the query. `factory` is null if the stream's rows are the reports.
   */
  public StreamingQuery start(
      DataStreamWriter writer,
      SparkContext context,
      String property,
      BiFunction begin,
      BiFunction end,
      StreamingDataWriterFactory factory)
      throws Exception {
    this.context = context;
    this.property = property;
    this.begin = begin;
    this.end = end;
    this.factory = factory;
    String key = Integer.toHexString(System.identityHashCode(this));
    STARTING.put(key, this);
    // Spark makes the sink itself, by its name: it looks for the class with this thread's loader.
    Thread thread = Thread.currentThread();
    ClassLoader loader = thread.getContextClassLoader();
    thread.setContextClassLoader(SeamarkEpochSink.class.getClassLoader());
    try {
      writer.format(SeamarkEpochSink.class.getName());
      writer.option(KEY, key);
      return writer.start();
    } finally {
      thread.setContextClassLoader(loader);
      STARTING.remove(key);
    }
  }

  public StructType inferSchema(CaseInsensitiveStringMap options) { return new StructType(); }
  public boolean supportsExternalMetadata() { return true; }

  public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
    Object key = new CaseInsensitiveStringMap(properties).get(KEY);
    SeamarkEpochSink table = (SeamarkEpochSink) STARTING.get(key);
    table.schema = schema;
    return table;
  }

  public String name() { return "seamark"; }
  public StructType schema() { return schema; }
  public Set capabilities() { return Collections.singleton(TableCapability.STREAMING_WRITE); }
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) { return this; }
  public Write build() { return this; }
  public StreamingWrite toStreaming() { return this; }

  public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
    Long epoch = Long.valueOf(context.getLocalProperty("streaming.sql.batchId"));
    Object text = begin.apply(epoch, Integer.valueOf(info.numPartitions()));
    context.setLocalProperty(property, (String) text);
    return factory == null ? PackedRowWriterFactory$.MODULE$ : factory;
  }

  public boolean useCommitCoordinator() { return true; }

  public void commit(long epoch, WriterCommitMessage[] messages) {
    List reports = new ArrayList();
    for (int i = 0; i < messages.length; i++) {
      InternalRow[] rows = ((PackedRowCommitMessage) messages[i]).rows();
      for (int j = 0; j < rows.length; j++) {
        reports.add(rows[j].getBinary(0));
      }
    }
    end.apply(Long.valueOf(epoch), reports);
  }

  public void abort(long epoch, WriterCommitMessage[] messages) {}
}
