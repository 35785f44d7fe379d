/*
 * The calls of Spark's state stores that differ between its versions: those of the newest.
 * SparkStateOlder.java has the same class for a Spark without key extractors (spark_versions.py).
 */
package seamark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatePartitionKeyExtractorFactory;
import org.apache.spark.sql.execution.streaming.state.*;
import org.apache.spark.sql.types.StructType;
import scala.Option;

public class SparkState {
  final StatePartitionKeyExtractor extractor;

  /** The columns of a state key that decide on its partition. */
  public SparkState(String operator, StructType key, String store, String family, Option format,
      Option variable) {
    this.extractor =
        StatePartitionKeyExtractorFactory.create(operator, key, store, family, format, variable);
  }

  public StructType columns() {
    return this.extractor.partitionKeySchema();
  }

  public InternalRow of(UnsafeRow key) {
    return this.extractor.partitionKey(key);
  }

  static StateStore toRead(StateStoreProvider provider, long version, Option id) {
    return provider.getStore(version, id, false, false);
  }

  /** An empty store whose commit makes `version`, unless the version has to be renamed. */
  static StateStore toWrite(StateStoreProvider provider, long version, boolean rocks) {
    // Only RocksDB makes a version out of nothing; the other backend begins at the first one.
    return provider.getStore(rocks ? version - 1 : 0, Option.empty(), rocks, rocks);
  }

  /** Whether a store written from nothing has the first version, to be renamed. */
  static boolean writesFirst(boolean rocks) {
    return !rocks;
  }

  static boolean has(StateStore store, UnsafeRow key, String family) {
    return store.keyExists(key, family);
  }
}
