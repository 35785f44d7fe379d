/*
 * A file of a savepoint's rows, as docs/FORMAT.md has them, written by one task.
 *
 * StateRows.java says which rows; it is compiled after this file, and like it (state/rows.py).
 */
package seamark;

import java.io.IOException;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.UUID;
import java.util.zip.CRC32;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.bytes.DirectByteBufferAllocator;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.hadoop.api.WriteSupport;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.parquet.io.OutputFile;
import org.apache.parquet.io.PositionOutputStream;
import org.apache.parquet.io.api.Binary;
import org.apache.parquet.io.api.RecordConsumer;
import org.apache.parquet.schema.MessageTypeParser;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.util.SerializableConfiguration;

/**
 * It comes into being with its first row, under a name that no other attempt of its task takes; which
 * files are the savepoint's is the driver's to say.
 *
 * Parquet's own writer is driven here, and not Spark's, which copies every row more often, and of
 * which nobody learns the bytes and the checksum of what it has written.
 */
public class RowFile {
  /**
   * Compressed rows wait in memory until a row group is full. With larger ones the JVM's collector
   * has to mark its whole heap at each savepoint: a third of the CPU time.
   */
  static final long ROW_GROUP_BYTES = 8 << 20;

  final Path path;
  final FileSystem files;
  final Configuration conf;
  final Binary[] names;
  final long[] rows;
  final long[] bytes;
  final StateRow row = new StateRow();
  final TaskContext task = TaskContext.get();  // null in a thread of the driver
  ParquetWriter writer;
  Output output;
  boolean ended;

  public RowFile(String directory, int partition, ArrayList names, Configuration conf)
      throws IOException {
    this.path = new Path(directory,
        String.format("part-%05d-%s.snappy.parquet", new Object[] {partition, UUID.randomUUID()}));
    this.conf = conf;
    this.files = this.path.getFileSystem(conf);
    this.names = new Binary[names.size()];
    for (int i = 0; i < names.size(); i++) this.names[i] = Binary.fromString((String) names.get(i));
    this.rows = new long[this.names.length];
    this.bytes = new long[this.names.length];
  }

  /** Writes a row of the family of this number; sequence: -1 for none. The bytes may be reused. */
  public void write(int family, int hash, long sequence, Binary key, Binary value)
      throws IOException {
    if (this.writer == null) this.open();
    this.row.family = this.names[family];
    this.row.hash = hash;
    this.row.sequence = sequence;
    this.row.key = key;
    this.row.value = value;
    this.writer.write(this.row);
    this.rows[family]++;
    this.bytes[family] += key.length() + value.length();
    if (this.task == null) Aside.restIfDue();
    else if ((this.rows[family] & 1023) == 0) this.task.killTaskIfInterrupted();
  }

  void open() throws IOException {
    this.output = new Output(this.files.create(this.path, false));
    RowWriter builder = new RowWriter(new RowOutputFile(this.output));
    builder.withConf(this.conf);
    builder.withCompressionCodec(CompressionCodecName.SNAPPY);
    builder.withRowGroupSize(ROW_GROUP_BYTES);
    // What is copied less in Java's heap, the stream's epochs need not wait for its collector.
    builder.withAllocator(new DirectByteBufferAllocator());
    builder.withPageWriteChecksumEnabled(false);  // the record has the whole file's
    builder.withDictionaryEncoding(false);  // keys and values hardly repeat
    builder.withDictionaryEncoding("column_family", true);
    builder.withStatisticsEnabled(false);  // nobody looks for a key in here
    builder.withSizeStatisticsEnabled(false);
    this.writer = builder.build();
  }

  /** Adds (number, name, bytes, CRC-32, rows by family, bytes by family), if there is a row. */
  public void end(int number, ArrayList files) throws IOException {
    if (this.writer != null) {
      this.writer.close();
      ArrayList rows = new ArrayList();
      ArrayList bytes = new ArrayList();
      for (int i = 0; i < this.names.length; i++) {
        rows.add(Long.valueOf(this.rows[i]));
        bytes.add(Long.valueOf(this.bytes[i]));
      }
      files.add(RowFactory.create(new Object[] {Integer.valueOf(number), this.path.getName(),
          Long.valueOf(this.output.getPos()), Long.valueOf(this.output.crc.getValue()), rows, bytes}));
    }
    this.ended = true;
  }

  public void deleteUnlessEnded() {
    if (this.ended || this.output == null) return;
    try {
      this.output.close();
      this.files.delete(this.path, false);
    } catch (IOException error) {
      // It is not of the savepoint in any case.
    }
  }

  /** The bytes of a row, where they lie. */
  public static Binary binary(UnsafeRow row) {
    if (!(row.getBaseObject() instanceof byte[])) return Binary.fromReusedByteArray(row.getBytes());
    return Binary.fromReusedByteArray((byte[]) row.getBaseObject(),
        (int) (row.getBaseOffset() - Platform.BYTE_ARRAY_OFFSET), row.getSizeInBytes());
  }

  static class StateRow {
    Binary family;
    int hash;
    long sequence;
    Binary key;
    Binary value;
  }

  static class RowWriter extends ParquetWriter.Builder {
    RowWriter(OutputFile file) {
      super(file);
    }

    protected ParquetWriter.Builder self() {
      return this;
    }

    protected WriteSupport getWriteSupport(Configuration conf) {
      return new RowSupport();
    }
  }

  static class RowSupport extends WriteSupport {
    RecordConsumer to;

    public WriteSupport.WriteContext init(Configuration conf) {
      return new WriteSupport.WriteContext(MessageTypeParser.parseMessageType("message state_row {"
          + " required binary column_family (STRING); required int32 key_hash;"
          + " optional int64 sequence; required binary key; required binary value; }"), new HashMap());
    }

    public void prepareForWrite(RecordConsumer consumer) {
      this.to = consumer;
    }

    public void write(Object record) {
      StateRow row = (StateRow) record;
      this.to.startMessage();
      this.to.startField("column_family", 0);
      this.to.addBinary(row.family);
      this.to.endField("column_family", 0);
      this.to.startField("key_hash", 1);
      this.to.addInteger(row.hash);
      this.to.endField("key_hash", 1);
      if (row.sequence >= 0) {
        this.to.startField("sequence", 2);
        this.to.addLong(row.sequence);
        this.to.endField("sequence", 2);
      }
      this.to.startField("key", 3);
      this.to.addBinary(row.key);
      this.to.endField("key", 3);
      this.to.startField("value", 4);
      this.to.addBinary(row.value);
      this.to.endField("value", 4);
      this.to.endMessage();
    }
  }

  static class RowOutputFile implements OutputFile {
    final Output output;

    RowOutputFile(Output output) {
      this.output = output;
    }

    public PositionOutputStream create(long blockSize) {
      return this.output;
    }

    public PositionOutputStream createOrOverwrite(long blockSize) {
      return this.output;
    }

    public boolean supportsBlockSize() {
      return false;
    }

    public long defaultBlockSize() {
      return 0;
    }

    public String getPath() {
      return null;
    }
  }

  /** Counts and sums up what is written. */
  static class Output extends PositionOutputStream {
    final OutputStream to;
    final CRC32 crc = new CRC32();
    long written = 0;

    Output(OutputStream to) {
      this.to = to;
    }

    public long getPos() {
      return this.written;
    }

    public void write(int b) throws IOException {
      this.to.write(b);
      this.crc.update(b);
      this.written++;
    }

    public void write(byte[] bytes, int offset, int length) throws IOException {
      this.to.write(bytes, offset, length);
      this.crc.update(bytes, offset, length);
      this.written += length;
    }

    public void flush() throws IOException {
      this.to.flush();
    }

    public void close() throws IOException {
      this.to.close();
    }
  }

  /** Rows of one store in, as Spark reads them; what `end` says of their file out. */
  public static class WriteFile implements FlatMapFunction {
    final String directory;
    final ArrayList names;
    final SerializableConfiguration hadoop;

    public WriteFile(String directory, ArrayList names, SerializableConfiguration hadoop) {
      this.directory = directory;
      this.names = names;
      this.hadoop = hadoop;
    }

    public Iterator call(Object input) throws IOException {
      ArrayList files = new ArrayList();
      int partition = TaskContext.getPartitionId();
      RowFile file = new RowFile(this.directory, partition, this.names, this.hadoop.value());
      try {
        Iterator rows = (Iterator) input;
        while (rows.hasNext()) {
          InternalRow row = (InternalRow) rows.next();
          file.write(this.names.indexOf(row.getString(0)), row.getInt(1),
              row.isNullAt(2) ? -1 : row.getLong(2), Binary.fromReusedByteArray(row.getBinary(3)),
              Binary.fromReusedByteArray(row.getBinary(4)));
        }
        file.end(0, files);
      } finally {
        file.deleteUnlessEnded();
      }
      return files.iterator();
    }
  }
}
