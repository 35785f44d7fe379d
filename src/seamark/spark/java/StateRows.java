/*
 * Moves the rows of state stores in Spark's tasks, both ways: out of them into the files of a savepoint
 * (RowFile.java), and back; and decodes and encodes their columns.
 *
 * Janino, which Spark ships, compiles this file in the driver (state/rows.py): no generics to speak
 * of, no lambdas. Only Spark's own StateStore interface is used, so a row is what Spark calls a row,
 * whichever backend holds it.
 */
package seamark;

import java.io.IOException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.UUID;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.io.api.Binary;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.CatalystTypeConverters;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.CollationAwareMurmur3Hash;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.*;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
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
    final boolean keyed;

    public Store(String location, long operator, String operatorName, String name, Option stateFormat,
        StateStoreConf conf, SerializableConfiguration hadoop, Option schemas, ArrayList families,
        boolean useFamilies, boolean keyed) {
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
      this.keyed = keyed;
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

    ArrayList names() {
      ArrayList names = new ArrayList();
      for (int i = 0; i < this.families.size(); i++) names.add(((Family) this.families.get(i)).name());
      return names;
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
    final SparkState columns;
    final UnsafeProjection hash;

    KeyHash(Store store, Family family) {
      if (!store.keyed) {  // all rows are in one partition
        this.columns = null;
        this.hash = null;
        return;
      }
      this.columns = new SparkState(store.operatorName, family.schema.keySchema(), store.name,
          family.name(), store.stateFormat, family.variable);
      ArrayList columns = new ArrayList();
      StructField[] fields = this.columns.columns().fields();
      for (int i = 0; i < fields.length; i++) {
        columns.add(new BoundReference(i, fields[i].dataType(), fields[i].nullable()));
      }
      ArrayList hashes = new ArrayList();
      hashes.add(new CollationAwareMurmur3Hash(sequence(columns), 42));
      this.hash = UnsafeProjection.create(sequence(hashes));
    }

    static scala.collection.immutable.Seq sequence(ArrayList items) {
      return (scala.collection.immutable.Seq)
          scala.jdk.javaapi.CollectionConverters.asScala((java.util.List) items).toSeq();
    }

    int of(UnsafeRow key) {
      if (this.hash == null) return 42;
      return this.hash.apply(this.columns.of(key)).getInt(0);
    }
  }

  /** One store as it is to be exported: `version` of all its partitions, into a directory. */
  public static class Source implements java.io.Serializable {
    final Store store;
    final int partitions;
    final long version;
    final ArrayList ids;
    final String directory;
    transient HDFSBackedStateStoreMap[] inMemory;

    /** ids: the unique id of each partition's version in Spark's checkpoint format 2; else null. */
    public Source(Store store, int partitions, long version, ArrayList ids, String directory) {
      this.store = store;
      this.partitions = partitions;
      this.version = version;
      this.ids = ids;
      this.directory = directory;
    }

    /**
     * Keeps the maps that a run of the query holds of this version in this JVM's memory, so that its
     * files need not be read; returns how many. The hashmap backend has those of the last versions,
     * and alters none that is committed.
     *
     * run: its id; what another run of the query has in memory may never have been decided.
     */
    public int keep(String run) throws Exception {
      this.inMemory = new HDFSBackedStateStoreMap[this.partitions];
      Class stores = Class.forName("org.apache.spark.sql.execution.streaming.state.StateStore$");
      Method loaded = stores.getDeclaredMethod("loadedProviders", new Class[0]);
      loaded.setAccessible(true);
      Object providers = loaded.invoke(stores.getField("MODULE$").get(null), new Object[0]);
      HDFSBackedStateStoreProvider[] found = new HDFSBackedStateStoreProvider[this.partitions];
      synchronized (providers) {  // as Spark does
        scala.collection.Iterator entries = ((scala.collection.Iterable) providers).iterator();
        while (entries.hasNext()) {
          scala.Tuple2 entry = (scala.Tuple2) entries.next();
          StateStoreProviderId id = (StateStoreProviderId) entry._1();
          if (entry._2() instanceof HDFSBackedStateStoreProvider
              && id.queryRunId().toString().equals(run)
              && id.storeId().operatorId() == this.store.operator
              && id.storeId().storeName().equals(this.store.name)
              && id.storeId().partitionId() < this.partitions) {
            found[id.storeId().partitionId()] = (HDFSBackedStateStoreProvider) entry._2();
          }
        }
      }
      int kept = 0;
      for (int i = 0; i < this.partitions; i++) {
        if (found[i] == null) continue;
        this.inMemory[i] =
            (HDFSBackedStateStoreMap) found[i].getLoadedMaps().get(Long.valueOf(this.version));
        if (this.inMemory[i] != null) kept++;
      }
      return kept;
    }
  }

  /** Numbers in, which count the partitions of all sources; what RowFile says of each file out. */
  public static class Export implements FlatMapFunction {
    final ArrayList sources;

    public Export(ArrayList sources) {
      this.sources = sources;
    }

    public Iterator call(Object numbers) throws Exception {
      return this.files((Iterator) numbers).iterator();
    }

    public ArrayList files(Iterator numbers) throws Exception {
      ArrayList files = new ArrayList();
      while (numbers.hasNext()) {
        int partition = ((Number) numbers.next()).intValue();
        int source = 0;
        while (partition >= ((Source) this.sources.get(source)).partitions) {
          partition -= ((Source) this.sources.get(source++)).partitions;
        }
        this.export(source, partition, files);
      }
      return files;
    }

    void export(int number, int partition, ArrayList files) throws Exception {
      Source source = (Source) this.sources.get(number);
      RowFile file = new RowFile(source.directory, partition, source.store.names(),
          source.store.hadoop.value());
      try {
        if (source.inMemory != null && source.inMemory[partition] != null) {
          this.export(source.inMemory[partition].iterator(), null, source.store, 0, file);
          source.inMemory[partition] = null;
        } else {
          this.exportStored(source, partition, file);
        }
        file.end(number, files);
      } finally {
        file.deleteUnlessEnded();
      }
    }

    void exportStored(Source source, int partition, RowFile file) throws Exception {
      StateStoreProvider provider = source.store.provider(partition);
      try {
        Option id = source.ids == null ? Option.empty() : Option.apply(source.ids.get(partition));
        StateStore store = SparkState.toRead(provider, source.version, id);
        try {
          source.store.register(store);
          for (int family = 0; family < source.store.families.size(); family++) {
            String name = ((Family) source.store.families.get(family)).name();
            this.export((scala.collection.Iterator) store.iterator(name), store, source.store,
                family, file);
          }
        } finally {
          store.abort();
        }
      } finally {
        provider.close();
      }
    }

    /** store: asked for the values of a key, where it can have several. */
    void export(scala.collection.Iterator rows, StateStore store, Store of, int number, RowFile file)
        throws IOException {
      Family family = (Family) of.families.get(number);
      KeyHash hash = null;
      while (rows.hasNext()) {
        if (hash == null) hash = new KeyHash(of, family);
        UnsafeRowPair row = (UnsafeRowPair) rows.next();
        if (!family.multiple) {
          file.write(number, hash.of(row.key()), -1, RowFile.binary(row.key()),
              RowFile.binary(row.value()));
          continue;
        }
        // Its value is all of them in one, encoded as the backend likes it.
        UnsafeRow key = row.key().copy();
        int hashed = hash.of(key);
        scala.collection.Iterator values = store.valuesIterator(key, family.name());
        for (long sequence = 0; values.hasNext(); sequence++) {
          file.write(number, hashed, sequence, RowFile.binary(key),
              RowFile.binary((UnsafeRow) values.next()));
        }
      }
    }
  }

  /** Rows of one family as they are in a savepoint in; (key, value, sequence) decoded out. */
  public static class Decode implements FlatMapFunction {
    final StructType key;
    final StructType value;

    public Decode(StructType key, StructType value) {
      this.key = key;
      this.value = value;
    }

    public Iterator call(Object input) {
      scala.Function1 keys = CatalystTypeConverters.createToScalaConverter(this.key);
      scala.Function1 values = CatalystTypeConverters.createToScalaConverter(this.value);
      return new Decoded((Iterator) input, this, keys, values);
    }
  }

  static class Decoded implements Iterator {
    final Iterator rows;
    final Decode types;
    final scala.Function1 keys;
    final scala.Function1 values;

    Decoded(Iterator rows, Decode types, scala.Function1 keys, scala.Function1 values) {
      this.rows = rows;
      this.types = types;
      this.keys = keys;
      this.values = values;
    }

    public boolean hasNext() {
      return this.rows.hasNext();
    }

    public Object next() {
      Row row = (Row) this.rows.next();
      return RowFactory.create(new Object[] {
          this.keys.apply(unsafe(this.types.key, (byte[]) row.get(3))),
          this.values.apply(unsafe(this.types.value, (byte[]) row.get(4))), row.get(2)});
    }

    public void remove() {
      throw new UnsupportedOperationException();
    }
  }

  /** (key, value, sequence) of one family in; its rows as they are in a savepoint out. */
  public static class Encode implements FlatMapFunction {
    final Store store;
    final Family family;

    public Encode(Store store, Family family) {
      this.store = store;
      this.family = family;
    }

    public Iterator call(Object input) {
      return new Encoded((Iterator) input, this);
    }
  }

  static class Encoded implements Iterator {
    final Iterator rows;
    final Encode of;
    final KeyHash hash;
    final scala.Function1 keys;
    final scala.Function1 values;
    final UnsafeProjection keyRow;
    final UnsafeProjection valueRow;

    Encoded(Iterator rows, Encode of) {
      this.rows = rows;
      this.of = of;
      this.hash = new KeyHash(of.store, of.family);
      this.keys = CatalystTypeConverters.createToCatalystConverter(of.family.schema.keySchema());
      this.values = CatalystTypeConverters.createToCatalystConverter(of.family.schema.valueSchema());
      this.keyRow = UnsafeProjection.create(of.family.schema.keySchema());
      this.valueRow = UnsafeProjection.create(of.family.schema.valueSchema());
    }

    public boolean hasNext() {
      return this.rows.hasNext();
    }

    public Object next() {
      Row row = (Row) this.rows.next();
      UnsafeRow key = this.keyRow.apply((InternalRow) this.keys.apply(row.get(0)));
      UnsafeRow value = this.valueRow.apply((InternalRow) this.values.apply(row.get(1)));
      return new GenericInternalRow(new Object[] {UTF8String.fromString(this.of.family.name()),
          Integer.valueOf(this.hash.of(key)), row.get(2), key.getBytes(), value.getBytes()});
    }

    public void remove() {
      throw new UnsupportedOperationException();
    }
  }

  static UnsafeRow unsafe(StructType schema, byte[] bytes) {
    UnsafeRow row = new UnsafeRow(schema.length());
    row.pointTo(bytes, bytes.length);
    return row;
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
      boolean rocks = this.store.conf.providerClass().endsWith("RocksDBStateStoreProvider");
      HashMap families = new HashMap();
      for (int i = 0; i < this.store.families.size(); i++) {
        Family family = (Family) this.store.families.get(i);
        families.put(UTF8String.fromString(family.name()), family);
      }
      StateStoreProvider provider = this.store.provider(partition);
      long rows = 0;
      Option id = Option.empty();
      try {
        StateStore state = SparkState.toWrite(provider, this.version, rocks);
        try {
          this.store.register(state);
          Iterator iterator = (Iterator) input;
          while (iterator.hasNext()) {
            InternalRow row = (InternalRow) iterator.next();
            this.put(state, (Family) families.get(row.getUTF8String(0)), row.getBinary(3),
                row.getBinary(4));
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
      if (SparkState.writesFirst(rocks)) this.rename(partition, rocks, id);
      return Collections.singletonList(RowFactory.create(new Object[] {Integer.valueOf(partition),
          Long.valueOf(rows), id.isDefined() ? (String) id.get() : null})).iterator();
    }

    void put(StateStore state, Family family, byte[] keyBytes, byte[] valueBytes) {
      UnsafeRow key = unsafe(family.schema.keySchema(), keyBytes);
      UnsafeRow value = unsafe(family.schema.valueSchema(), valueBytes);
      if (family.multiple && SparkState.has(state, key, family.name())) {
        state.merge(key, value, family.name());
      } else {
        state.put(key, value, family.name());
      }
    }

    /** Gives the first version's file the name of a whole copy at the version. */
    void rename(int partition, boolean rocks, Option id) throws Exception {
      String ending = rocks ? (id.isDefined() ? "_" + id.get() : "") + ".zip" : ".snapshot";
      String first = rocks ? "1" + ending : "1.delta";
      if (first.equals(this.version + ending)) return;
      String directory = this.store.location + "/" + this.store.operator + "/" + partition
          + (this.store.name.equals("default") ? "" : "/" + this.store.name);
      Configuration conf = this.store.hadoop.value();
      FileSystem files = new Path(directory).getFileSystem(conf);
      Path written = new Path(directory + "/" + first);
      Path wanted = new Path(directory + "/" + this.version + ending);
      // One that is there is of another attempt of this task, and holds the same rows.
      if (!files.rename(written, wanted)) {
        if (!files.exists(wanted)) throw new java.io.IOException("cannot rename " + written + " to " + wanted);
        files.delete(written, false);
      }
      Path checksum = new Path(directory + "/" + first + ".crc");
      if (files.exists(checksum)) {
        files.rename(checksum, new Path(directory + "/" + this.version + ending + ".crc"));
      }
    }
  }
}
