import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.CreateArray;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Explode;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Generator;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.PosExplode;
import org.apache.spark.sql.catalyst.expressions.ScalarSubquery;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Generate;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;

/**
 * The one stream of several sinks, whose module is shared_stream.py: a plan that grows by the columns
 * of each. Expression ids stay those of the sinks' own plans, so no expression needs to be rewritten.
 *
 * <p>A sink's *path* is the list of its plans from the shared one up: the first is the shared plan as
 * the sink has it, each other one the plan with one step more. Beside it goes a list of numbers:
 * plans with equal numbers are equal.
 */
public final class SeamarkStream {
  private LogicalPlan plan;
  private final ArrayList output = new ArrayList();
  private final HashSet present = new HashSet();
  private final HashMap done = new HashMap();
  private final HashMap files = new HashMap();

  // --- a sink's plan

  /** The plans from the first node that is no stateless step up to the plan. */
  public List path(LogicalPlan plan) {
    boolean step = plan instanceof Project || plan instanceof Filter || plan instanceof Generate;
    if (!step && !(plan instanceof SubqueryAlias)) {
      return new ArrayList(Arrays.asList(new Object[] {plan}));
    }
    List plans = path((LogicalPlan) plan.children().head());
    if (step) plans.add(plan);
    return plans;
  }

  /** Whether the steps of a path can be columns beside those of other sinks. */
  public boolean fits(List path) {
    boolean filtered = false;
    for (int i = 1; i < path.size(); i++) {
      LogicalPlan step = (LogicalPlan) path.get(i);
      if (step instanceof Generate) {
        Object generator = ((Generate) step).generator();
        if (!(generator instanceof Explode || generator instanceof PosExplode)) return false;
        filtered = true;
      }
      List expressions = items(step.expressions());
      for (int j = 0; filtered && j < expressions.size(); j++) {
        if (((Expression) expressions.get(j)).containsPattern(TreePattern.PYTHON_UDF())) return false;
      }
      filtered |= step instanceof Filter;
    }
    return true;
  }

  /**
   * The places of the paths, the first among them, in which each expression id keeps one meaning.
   *
   * <p>Spark makes a new id for each column, so nobody has seen two ids clash. Still, a plan must not
   * depend on that: a clash would make it compute the wrong column. The columns of one table do have
   * the same ids in the subqueries of several sinks: see `Lookup`.
   */
  public List withoutClashes(List paths, List numbers) {
    HashMap meanings = new HashMap();
    ArrayList places = new ArrayList();
    ArrayList lookups = new ArrayList();
    for (int i = 0; i < paths.size(); i++) {
      List path = (List) paths.get(i);
      HashMap own = new HashMap();
      ArrayList ownLookups = new ArrayList();
      for (int height = 0; height < path.size(); height++) {
        LogicalPlan node = (LogicalPlan) path.get(height);
        Object number = ((List) numbers.get(i)).get(height);
        List parts = height == 0 ? Collections.EMPTY_LIST : partsOf(node);
        for (int j = 0; j < parts.size(); j++) {
          if (parts.get(j) instanceof SubqueryExpression) {
            ownLookups.add(new Lookup((SubqueryExpression) parts.get(j), number));
          }
        }
        List made = height == 0 ? items(node.output()) : newColumns(node);
        for (int j = 0; j < made.size(); j++) {
          own.put(idOf(made.get(j)), ((List) numbers.get(i)).get(height) + " " + j);
        }
      }
      boolean clashes = false;
      Object[] ids = own.keySet().toArray();
      for (int j = 0; j < ids.length; j++) {
        clashes |= meanings.containsKey(ids[j]) && !meanings.get(ids[j]).equals(own.get(ids[j]));
      }
      for (int j = 0; j < ownLookups.size(); j++) {
        for (int k = 0; k < lookups.size(); k++) {
          clashes |= ((Lookup) ownLookups.get(j)).clashesWith((Lookup) lookups.get(k));
        }
      }
      if (clashes) continue;
      meanings.putAll(own);
      lookups.addAll(ownLookups);
      places.add(Integer.valueOf(i));
    }
    return places;
  }

  /**
   * A subquery of the step with this number. Spark joins a correlated scalar one to the rows, so its
   * table's columns are among theirs: a join for a subquery over the same table would compare those
   * columns with themselves. In one program's plan Spark gives the second table other ids; the plans
   * of several sinks it has not seen together.
   */
  private static final class Lookup {
    final Object number;
    final boolean staysInRows;
    final HashSet ids = new HashSet();

    Lookup(SubqueryExpression subquery, Object number) {
      this.number = number;
      staysInRows = subquery instanceof ScalarSubquery && subquery.isCorrelated();
      collectIds((LogicalPlan) subquery.plan());
    }

    private void collectIds(LogicalPlan node) {
      List columns = items(node.output());
      for (int i = 0; i < columns.size(); i++) ids.add(idOf(columns.get(i)));
      List below = items(node.children());
      for (int i = 0; i < below.size(); i++) collectIds((LogicalPlan) below.get(i));
    }

    boolean clashesWith(Lookup other) {
      return (staysInRows || other.staysInRows) && !number.equals(other.number)
          && !Collections.disjoint(ids, other.ids);
    }
  }

  /** The expressions of a step and all within them, but those of its subqueries' plans. */
  private static List partsOf(LogicalPlan step) {
    ArrayList parts = new ArrayList(items(step.expressions()));
    for (int i = 0; i < parts.size(); i++) parts.addAll(items(((Expression) parts.get(i)).children()));
    return parts;
  }

  /** The columns made by a step, without those that it passes on. */
  private static List newColumns(LogicalPlan step) {
    if (step instanceof Generate) return items(((Generate) step).generatorOutput());
    ArrayList made = new ArrayList();
    if (step instanceof Filter) return made;
    List columns = items(((Project) step).projectList());
    for (int i = 0; i < columns.size(); i++) {
      if (!(columns.get(i) instanceof AttributeReference)) made.add(columns.get(i));
    }
    return made;
  }

  // --- the stream

  /** The stream with a struct for each path's sink, named `s0`, `s1`, …; once. */
  public Dataset stream(SparkSession spark, List paths, List numbers) {
    plan = (LogicalPlan) ((List) paths.get(0)).get(0);
    made(items(plan.output()));
    List shared = new ArrayList(output);
    for (int i = 0; i < paths.size(); i++) rename(shared, columns((List) paths.get(i), 0));
    for (int i = 0; i < paths.size(); i++) {
      List path = (List) paths.get(i);
      for (int height = 1; height < path.size(); height++) {
        List parts = items(((LogicalPlan) path.get(height)).expressions());
        for (int j = 0; j < parts.size(); j++) withFiles((Expression) parts.get(j));
      }
    }
    int[] explodeAt = new int[paths.size()];
    Expression[] conditions = new Expression[paths.size()];
    ArrayList explodes = new ArrayList();
    for (int i = 0; i < paths.size(); i++) {
      List path = (List) paths.get(i);
      int at = 1;
      while (at < path.size() && !(path.get(at) instanceof Generate)) at++;
      explodeAt[i] = at;
      conditions[i] = take(path, (List) numbers.get(i), 1, at, null);
      if (at == path.size()) continue;
      Object number = ((List) numbers.get(i)).get(at);
      if (!explodes.contains(number)) explodes.add(number);
    }
    Attribute copy = explodes.isEmpty() ? null : copies(explodes.size() + 1);
    ArrayList structs = new ArrayList();
    for (int i = 0; i < paths.size(); i++) {
      List path = (List) paths.get(i);
      int at = explodeAt[i];
      Expression condition = conditions[i];
      if (copy != null) {
        int own = at == path.size() ? 0 : 1 + explodes.indexOf(((List) numbers.get(i)).get(at));
        Expression mine = new EqualTo(copy, literal(Integer.valueOf(own), DataTypes.IntegerType));
        condition = condition == null ? mine : new And(condition, mine);
      }
      condition = take(path, (List) numbers.get(i), at, path.size(), condition);
      structs.add(struct(columns(path, path.size() - 1), condition, "s" + i));
    }
    return Dataset.ofRows(spark, new Project(seq(structs), plan));
  }

  /**
   * The expression with a column in the place of each `input_file_name()`, and of its two kin. The
   * columns are made at the first call, right over the shared plan: the functions are empty above a
   * join by a shuffle, which another sink's subquery may be, and run ahead above a Python function.
   */
  private Expression withFiles(Expression part) {
    Class kind = part.getClass();
    if (kind.getSimpleName().startsWith("InputFile")) {
      if (!files.containsKey(kind)) {
        Alias column = alias(part, "_seamark_file", NamedExpression.newExprId());
        project(listOf(column, null));
        files.put(kind, column.toAttribute());
      }
      return (Expression) files.get(kind);
    }
    List children = items(part.children());
    for (int i = 0; i < children.size(); i++) children.set(i, withFiles((Expression) children.get(i)));
    return (Expression) part.withNewChildren(seq(children));
  }

  /**
   * Adds a sink's steps from `start` to `end`, on the rows where `condition` holds; null is always.
   * Returns the condition that holds above them. Skips steps already added for another sink.
   */
  private Expression take(List path, List numbers, int start, int end, Expression condition) {
    for (int height = start; height < end; height++) {
      LogicalPlan step = (LogicalPlan) path.get(height);
      Object[] before = (Object[]) done.get(numbers.get(height));
      if (before != null) {
        rename((List) before[0], columns(path, height));
        condition = (Expression) before[1];
        continue;
      }
      if (step instanceof Filter) {
        condition = filter(withFiles(((Filter) step).condition()), condition);
      } else if (step instanceof Generate) {
        condition = explode((Generate) step, condition);
      } else {
        List columns = newColumns(step);
        for (int i = 0; i < columns.size(); i++) {
          columns.set(i, where(condition, withFiles((Expression) columns.get(i))));
        }
        project(columns);
      }
      done.put(numbers.get(height), new Object[] {columns(path, height), condition});
    }
    return condition;
  }

  private Expression filter(Expression predicate, Expression condition) {
    Literal no = literal(Boolean.FALSE, DataTypes.BooleanType);
    Expression holds = new Coalesce(seq(listOf(predicate, no)));
    if (condition != null) holds = new If(condition, holds, no);
    Alias column = alias(holds, "_seamark_goes", NamedExpression.newExprId());
    project(listOf(column, null));
    return column.toAttribute();
  }

  private Expression explode(Generate step, Expression condition) {
    List columns = newColumns(step);
    if (!(step.generator() instanceof PosExplode)) columns.add(0, attribute("_seamark_position"));
    Attribute position = (Attribute) columns.get(0);
    // In rows of other sinks, it makes one row without a position.
    Expression exploded = withFiles((Expression) ((Expression) step.generator()).children().head());
    generate(new PosExplode(when(condition, exploded)), columns, true);
    return step.outer() ? condition : filter(new IsNotNull(position), condition);
  }

  /** Multiplies the rows; returns the column with the copy's number. Copy 0 is for sinks without an
      explode, and there is one for each different explode. */
  private Attribute copies(int count) {
    ArrayList numbers = new ArrayList();
    for (int i = 0; i < count; i++) numbers.add(literal(Integer.valueOf(i), DataTypes.IntegerType));
    Attribute copy = attribute("_seamark_copy");
    generate(new Explode(new CreateArray(seq(numbers), false)), listOf(copy, null), false);
    return copy;
  }

  private static Alias struct(List columns, Expression condition, String name) {
    ArrayList fields = new ArrayList();
    for (int i = 0; i < columns.size(); i++) {
      fields.add(literal(((Attribute) columns.get(i)).name(), DataTypes.StringType));
      fields.add(columns.get(i));
    }
    return alias(when(condition, new CreateNamedStruct(seq(fields))), name, NamedExpression.newExprId());
  }

  /** Gives columns their expression ids in another plan of the same rows. */
  private void rename(List have, List want) {
    ArrayList columns = new ArrayList();
    for (int i = 0; i < want.size(); i++) {
      Attribute other = (Attribute) want.get(i);
      if (present.contains(idOf(other))) continue;
      columns.add(alias((Expression) have.get(i), other.name(), other.exprId()));
    }
    project(columns);
  }

  private void project(List columns) {
    if (columns.isEmpty()) return;
    ArrayList every = new ArrayList(output);
    every.addAll(columns);
    plan = new Project(seq(every), plan);
    ArrayList attributes = new ArrayList();
    for (int i = 0; i < columns.size(); i++) attributes.add(((NamedExpression) columns.get(i)).toAttribute());
    made(attributes);
  }

  private void generate(Generator generator, List columns, boolean outer) {
    ArrayList nullable = new ArrayList();
    for (int i = 0; i < columns.size(); i++) nullable.add(((Attribute) columns.get(i)).withNullability(true));
    plan = new Generate(
        generator, seq(new ArrayList()), outer, scala.Option.empty(), seq(nullable), plan);
    made(nullable);
  }

  private void made(List columns) {
    output.addAll(columns);
    for (int i = 0; i < columns.size(); i++) present.add(idOf(columns.get(i)));
  }

  // --- expressions

  /** A column computed where `condition` holds, and null elsewhere. */
  private static Object where(Expression condition, Expression alias) {
    Expression child = (Expression) alias.children().head();
    if (child instanceof AttributeReference) return alias;
    return alias.withNewChildren(seq(listOf(when(condition, child), null)));
  }

  private static Expression when(Expression condition, Expression value) {
    if (condition == null) return value;
    return new If(condition, value, new Literal(null, value.dataType()));
  }

  private static Alias alias(Expression child, String name, ExprId id) {
    return new Alias(
        child, name, id, seq(new ArrayList()), scala.Option.empty(), seq(new ArrayList()));
  }

  private static Attribute attribute(String name) {
    return new AttributeReference(
        name, DataTypes.IntegerType, true, Metadata.empty(), NamedExpression.newExprId(),
        seq(new ArrayList()));
  }

  private static Literal literal(Object value, DataType type) { return Literal.create(value, type); }

  private static Long idOf(Object column) {
    return Long.valueOf(((NamedExpression) column).exprId().id());
  }

  private static List columns(List path, int height) {
    return items(((LogicalPlan) path.get(height)).output());
  }

  private static List listOf(Object first, Object second) {
    ArrayList list = new ArrayList();
    list.add(first);
    if (second != null) list.add(second);
    return list;
  }

  private static scala.collection.immutable.Seq seq(List list) {
    return (scala.collection.immutable.Seq) PythonUtils.toSeq(list);
  }

  private static List items(scala.collection.Iterable items) {
    ArrayList list = new ArrayList();
    scala.collection.Iterator each = items.iterator();
    while (each.hasNext()) list.add(each.next());
    return list;
  }
}
