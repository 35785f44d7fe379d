/*
 * The calls of Spark's state stores that differ between its versions, for a Spark that does not say
 * itself which columns of a state key decide on its partition. See SparkState.java.
 *
 * The columns follow from the schemas: a key has its grouping columns first. A session window's key
 * ends with the window's start, and a joined row's with its number. In a transformWithState the
 * grouping columns are one struct, where the key has more than them: beside a map's own key, beside
 * a timer's time, and within the entry of an index of expiry times.
 */
package seamark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateVariableInfo;
import org.apache.spark.sql.execution.streaming.state.*;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;

public class SparkState {
  StructType columns;
  int[] places = new int[2];
  int[] widths = new int[2];
  int depth = 0;

  public SparkState(String operator, StructType key, String store, String family, Option format,
      Option variable) {
    this.columns = key;
    if (operator.startsWith("sessionWindow") || store.endsWith("keyWithIndexToValue")
        || family.endsWith("keyWithIndexToValue")) {
      StructField[] fields = new StructField[key.length() - 1];
      System.arraycopy(key.fields(), 0, fields, 0, fields.length);
      this.columns = new StructType(fields);
    } else if (operator.startsWith("transformWithState")) {
      String kind = ((TransformWithStateVariableInfo) variable.get()).stateVariableType().toString();
      if (family.startsWith("$ttl_")) {
        this.into(1);
        if (kind.equals("MapState") && this.columns.fields()[0].dataType() instanceof StructType) {
          this.into(0);
        }
      } else if (kind.equals("MapState")) {
        this.into(0);
      } else if (kind.equals("TimerState")) {
        this.into(family.endsWith("_timestampToKey") ? 1 : 0);
      }
    }
  }

  private void into(int place) {
    this.columns = (StructType) this.columns.fields()[place].dataType();
    this.places[this.depth] = place;
    this.widths[this.depth++] = this.columns.length();
  }

  public StructType columns() {
    return this.columns;
  }

  public InternalRow of(UnsafeRow key) {
    for (int i = 0; i < this.depth; i++) key = key.getStruct(this.places[i], this.widths[i]);
    return key;
  }

  static StateStore toRead(StateStoreProvider provider, long version, Option id) {
    return provider.getStore(version, id);
  }

  /** An empty store whose commit makes the first version. */
  static StateStore toWrite(StateStoreProvider provider, long version, boolean rocks) {
    return provider.getStore(0, Option.empty());
  }

  static boolean writesFirst(boolean rocks) {
    return true;
  }

  static boolean has(StateStore store, UnsafeRow key, String family) {
    return store.valuesIterator(key, family).hasNext();
  }
}
