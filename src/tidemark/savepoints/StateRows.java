/*
 * Moves the rows of a state store, both ways, in Spark's tasks: one task per state partition.
 *
 * Janino, which Spark ships, compiles this file in the driver (state_rows.py): no generics to speak
 * of, no lambdas. Only Spark's own StateStore interface is used, so a row is what Spark calls a row,
 * whichever backend holds it.
 */
package tidemark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.UUID;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.CollationAwareMurmur3Hash;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatePartitionKeyExtractorFactory;
import org.apache.spark.sql.execution.streaming.state.*;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;
import scala.Option;

public class StateRows {

  /** One column family of a store. */
  public static class Family implements java.io.Serializable {
    final StateStoreColFamilySchema schema;
    final boolean multiple;
    final boolean internal;
    final Option variable;

    public Family(StateStoreColFamilySchema schema, boolean multiple, boolean internal, Option variable) {
      this.schema = schema;
      this.multiple = multiple;
      this.internal = internal;
      this.variable = variable;
    }

    String name() {
      return this.schema.colFamilyName();
    }
  }

  /** One store of one operator, in all its partitions. */
  public static class Store implements java.io.Serializable {
    final String location;
    final long operator;
    final String operatorName;
    final String name;
    final Option stateFormat;
    final StateStoreConf conf;
    final SerializableConfiguration hadoop;
    final Option schemas;
    final ArrayList families;
    final boolean useFamilies;

    public Store(String location, long operator, String operatorName, String name, Option stateFormat,
        StateStoreConf conf, SerializableConfiguration hadoop, Option schemas, ArrayList families,
        boolean useFamilies) {
      this.location = location;
      this.operator = operator;
      this.operatorName = operatorName;
      this.name = name;
      this.stateFormat = stateFormat;
      this.conf = conf;
      this.hadoop = hadoop;
      this.schemas = schemas;
      this.families = families;
      this.useFamilies = useFamilies;
    }

    StateStoreProvider provider(int partition) {
      StateStoreColFamilySchema first = ((Family) this.families.get(0)).schema;
      for (int i = 0; i < this.families.size(); i++) {
        Family family = (Family) this.families.get(i);
        if (family.name().equals("default")) first = family.schema;
      }
      StateStoreId id = new StateStoreId(this.location, this.operator, partition, this.name);
      // A run id of its own: Spark's providers of a running query are other ones.
      return StateStoreProvider.createAndInit(
          new StateStoreProviderId(id, UUID.randomUUID()), first.keySchema(), first.valueSchema(),
          (KeyStateEncoderSpec) first.keyStateEncoderSpec().get(), this.useFamilies, this.conf,
          this.hadoop.value(), false, this.schemas);
    }

    /** Without this, neither reading nor writing knows how a family's rows are encoded. */
    void register(StateStore store) {
      for (int i = 0; this.useFamilies && i < this.families.size(); i++) {
        Family family = (Family) this.families.get(i);
        if (!family.name().equals("default")) {
          store.createColFamilyIfAbsent(family.name(), family.schema.keySchema(),
              family.schema.valueSchema(),
              (KeyStateEncoderSpec) family.schema.keyStateEncoderSpec().get(), family.multiple,
              family.internal);
        }
      }
    }
  }

  /** Hashes the columns of a state key that its operator's shuffle hashes. */
  static class KeyHash {
    final StatePartitionKeyExtractor extractor;
    final CollationAwareMurmur3Hash hash;

    KeyHash(Store store, Family family) {
      this.extractor = StatePartitionKeyExtractorFactory.create(store.operatorName,
          family.schema.keySchema(), store.name, family.name(), store.stateFormat, family.variable);
      ArrayList columns = new ArrayList();
      StructField[] fields = this.extractor.partitionKeySchema().fields();
      for (int i = 0; i < fields.length; i++) {
        columns.add(new BoundReference(i, fields[i].dataType(), fields[i].nullable()));
      }
      this.hash = new CollationAwareMurmur3Hash(
          (scala.collection.immutable.Seq)
              scala.jdk.javaapi.CollectionConverters.asScala((java.util.List) columns).toSeq(),
          42);
    }

    Integer of(UnsafeRow key) {
      return (Integer) this.hash.eval((InternalRow) this.extractor.partitionKey(key));
    }
  }

  /** Partition number in; (column_family, hash, sequence, key, value) out. */
  public static class Read implements FlatMapFunction {
    final Store store;
    final long version;
    final ArrayList ids;

    /** ids: the unique id of each partition's version in Spark's checkpoint format 2; else null. */
    public Read(Store store, long version, ArrayList ids) {
      this.store = store;
      this.version = version;
      this.ids = ids;
    }

    public Iterator call(Object partitions) throws Exception {
      Iterator numbers = (Iterator) partitions;
      if (!numbers.hasNext()) return Collections.emptyIterator();
      return new Rows(this, ((Number) numbers.next()).intValue());
    }
  }

  static class Rows implements Iterator {
    final Store description;
    final StateStoreProvider provider;
    final StateStore store;
    int next = 0;
    Family family;
    KeyHash hash;
    scala.collection.Iterator rows;
    UnsafeRow key;
    scala.collection.Iterator values;
    long sequence;
    boolean ended = false;

    Rows(Read read, int partition) {
      this.description = read.store;
      this.provider = read.store.provider(partition);
      Option id = read.ids == null ? Option.empty() : Option.apply(read.ids.get(partition));
      this.store = this.provider.getStore(read.version, id, false, false);
      read.store.register(this.store);
    }

    public boolean hasNext() {
      while (!this.ended && !this.inFamily()) {
        if (this.next == this.description.families.size()) {
          this.ended = true;
          this.store.abort();
          this.provider.close();
        } else {
          this.family = (Family) this.description.families.get(this.next++);
          this.sequence = 0;
          this.hash = null;
          this.values = null;
          this.rows = (scala.collection.Iterator) this.store.iterator(this.family.name());
        }
      }
      return !this.ended;
    }

    /** Whether the family has another row; of several values, moves on to the next key's. */
    boolean inFamily() {
      if (this.rows == null) return false;
      if (!this.family.multiple) return this.rows.hasNext();
      while ((this.values == null || !this.values.hasNext()) && this.rows.hasNext()) {
        // Its value is all of them in one, encoded as the backend likes it.
        this.key = ((UnsafeRowPair) this.rows.next()).key().copy();
        this.values = this.store.valuesIterator(this.key, this.family.name());
      }
      return this.values != null && this.values.hasNext();
    }

    public Object next() {
      if (!this.hasNext()) throw new NoSuchElementException();
      UnsafeRow value;
      if (this.family.multiple) {
        value = (UnsafeRow) this.values.next();
      } else {
        UnsafeRowPair row = (UnsafeRowPair) this.rows.next();
        this.key = row.key();
        value = row.value();
      }
      if (this.hash == null) this.hash = new KeyHash(this.description, this.family);
      Object place = this.family.multiple ? (Object) Long.valueOf(this.sequence++) : null;
      return RowFactory.create(new Object[] {this.family.name(), this.hash.of(this.key), place,
          this.key.getBytes(), value.getBytes()});
    }

    public void remove() {
      throw new UnsupportedOperationException();
    }
  }

  /** The rows of one partition in; (partition, rows, unique id of the version or null) out. */
  public static class Write implements FlatMapFunction {
    final Store store;
    final long version;

    public Write(Store store, long version) {
      this.store = store;
      this.version = version;
    }

    public Iterator call(Object input) throws Exception {
      int partition = TaskContext.getPartitionId();
      // Only RocksDB makes a version out of nothing; the other backend begins at the first one, and
      // its file is given the name of a whole copy at the version.
      boolean rocks = this.store.conf.providerClass().endsWith("RocksDBStateStoreProvider");
      HashMap families = new HashMap();
      for (int i = 0; i < this.store.families.size(); i++) {
        Family family = (Family) this.store.families.get(i);
        families.put(family.name(), family);
      }
      StateStoreProvider provider = this.store.provider(partition);
      long rows = 0;
      Option id = Option.empty();
      try {
        StateStore state = provider.getStore(rocks ? this.version - 1 : 0, Option.empty(), rocks, rocks);
        try {
          this.store.register(state);
          Iterator iterator = (Iterator) input;
          while (iterator.hasNext()) {
            Row row = (Row) iterator.next();
            this.put(state, (Family) families.get(row.getString(0)), (byte[]) row.get(3),
                (byte[]) row.get(4));
            rows++;
          }
          state.commit();
          id = state.getStateStoreCheckpointInfo().stateStoreCkptId();
        } finally {
          if (!state.hasCommitted()) state.abort();
        }
      } finally {
        provider.close();
      }
      if (!rocks) this.rename(partition);
      return Collections.singletonList(RowFactory.create(new Object[] {Integer.valueOf(partition),
          Long.valueOf(rows), id.isDefined() ? (String) id.get() : null})).iterator();
    }

    void put(StateStore state, Family family, byte[] keyBytes, byte[] valueBytes) {
      UnsafeRow key = new UnsafeRow(family.schema.keySchema().length());
      key.pointTo(keyBytes, keyBytes.length);
      UnsafeRow value = new UnsafeRow(family.schema.valueSchema().length());
      value.pointTo(valueBytes, valueBytes.length);
      if (family.multiple && state.keyExists(key, family.name())) {
        state.merge(key, value, family.name());
      } else {
        state.put(key, value, family.name());
      }
    }

    void rename(int partition) throws Exception {
      String directory = this.store.location + "/" + this.store.operator + "/" + partition
          + (this.store.name.equals("default") ? "" : "/" + this.store.name);
      Configuration conf = this.store.hadoop.value();
      FileSystem files = new Path(directory).getFileSystem(conf);
      Path written = new Path(directory + "/1.delta");
      Path wanted = new Path(directory + "/" + this.version + ".snapshot");
      // One that is there is of another attempt of this task, and holds the same rows.
      if (!files.rename(written, wanted)) {
        if (!files.exists(wanted)) throw new java.io.IOException("cannot rename " + written + " to " + wanted);
        files.delete(written, false);
      }
      Path checksum = new Path(directory + "/1.delta.crc");
      if (files.exists(checksum)) {
        files.rename(checksum, new Path(directory + "/" + this.version + ".snapshot.crc"));
      }
    }
  }
}
