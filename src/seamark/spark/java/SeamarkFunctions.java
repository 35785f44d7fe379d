import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.PythonUDF;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.DataFrameQueryContext;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreePattern;

/** Finds functions of one kind in an analysed plan (plan_functions.py). */
public final class SeamarkFunctions {
  private String kind;
  private final List found = new ArrayList();

  /**
   * The functions as JSON, each with its `column`, its name (`function`) and what is known of its
   * place: `site` in a Python program, `sql` of a query, `command` of a pickled Python function. The
   * kind is `varying`, `CURRENT_LIKE` or `PYTHON_UDF`.
   */
  public String find(LogicalPlan plan, String kind) throws Exception {
    this.kind = kind;
    look(plan);
    return new ObjectMapper().writeValueAsString(found);
  }

  /** Whether a plan or an expression holds such a function. */
  private boolean has(TreeNode part) {
    if (kind.equals("CURRENT_LIKE")) return part.containsPattern(TreePattern.CURRENT_LIKE());
    if (kind.equals("PYTHON_UDF")) return part.containsPattern(TreePattern.PYTHON_UDF());
    return !(part instanceof Expression
        ? ((Expression) part).deterministic() : ((LogicalPlan) part).deterministic());
  }

  private void look(LogicalPlan node) {
    if (!has(node)) return;
    scala.collection.Iterator each = node.expressions().iterator();
    while (each.hasNext()) {
      Expression part = (Expression) each.next();
      List path = new ArrayList();  // down to the function
      for (; part != null; part = firstBelow(part)) if (has(part)) path.add(0, part);
      if (!path.isEmpty()) tell(node, path);
    }
    each = node.children().iterator();
    while (each.hasNext()) look((LogicalPlan) each.next());
  }

  private Expression firstBelow(Expression part) {
    scala.collection.Iterator each = part.children().iterator();
    while (has(part) && each.hasNext()) {
      Expression child = (Expression) each.next();
      if (has(child)) return child;
    }
    return null;
  }

  private void tell(LogicalPlan node, List path) {
    Expression function = (Expression) path.get(0);
    Expression top = (Expression) path.get(path.size() - 1);
    boolean python = function instanceof PythonUDF;
    // A condition or a key is no column; mapInPandas and its like make the rows themselves.
    boolean column = top instanceof NamedExpression && !(top instanceof PythonUDF);
    scala.collection.Iterator each = function.children().iterator();
    while (each.hasNext()) path.add(each.next());
    String site = "";
    String sql = "";
    for (int i = 0; i < path.size(); i++) {
      Expression part = (Expression) path.get(i);
      if (site.isEmpty()) site = siteOf(part);
      scala.Option text = part.origin().sqlText();
      if (sql.isEmpty() && text.isDefined()) sql = (String) text.get();
    }
    HashMap told = new HashMap();
    told.put("column", column ? ((NamedExpression) top).name()
        : node.getClass().getSimpleName().toLowerCase());
    told.put("function", python ? ((PythonUDF) function).name() : function.prettyName());
    told.put("site", site);
    told.put("sql", sql);
    told.put("command", python ? commandOf((PythonUDF) function) : "");
    found.add(told);
  }

  private static String siteOf(Expression part) {
    Object context = part.origin().context();
    if (!(context instanceof DataFrameQueryContext)) return "";
    scala.Option noted = ((DataFrameQueryContext) context).pysparkErrorContext();
    return noted.isDefined() ? (String) ((scala.Tuple2) noted.get())._2() : "";
  }

  private static String commandOf(PythonUDF function) {
    scala.collection.Seq command = function.func().command();
    byte[] bytes = new byte[command.size()];
    for (int i = 0; i < bytes.length; i++) bytes[i] = ((Byte) command.apply(i)).byteValue();
    return Base64.getEncoder().encodeToString(bytes);
  }
}
