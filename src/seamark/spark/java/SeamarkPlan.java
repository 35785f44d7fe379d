import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.reflect.Constructor;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.UUID;
import org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationDef;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationRef;
import org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Generate;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.catalyst.plans.logical.WithCTE;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.optimizer.Optimizer;
import org.apache.spark.sql.catalyst.plans.physical.StatefulOpClusteredDistribution;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec;
import org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqMetadata;
import org.apache.spark.sql.execution.streaming.operators.stateful.EventTimeWatermarkExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.SessionWindowStateStoreSaveExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreSaveExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperator;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo;
import org.apache.spark.sql.execution.streaming.operators.stateful.StreamingGlobalLimitExec;
import org.apache.spark.sql.execution.streaming.runtime.IncrementalExecution;
import org.apache.spark.sql.execution.streaming.runtime.IncrementalExecution$;
import org.apache.spark.sql.execution.streaming.runtime.StreamingRelation;
import org.apache.spark.sql.execution.streaming.runtime.StreamingRelationExec;
import org.apache.spark.sql.execution.streaming.runtime.WatermarkPropagator$;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.streaming.OutputMode;

/**
 * Lets Spark plan a query, and traces its parts from the analysed plan to the plan that Spark runs
 * (planned_query.py).
 *
 * <p>It works on a copy of the analysed plan. Each node of the copy has its *place* as a tag: its
 * number, counted from the root, each node before those below it. Spark's rules copy a node's tags to
 * the node that they put in its stead. They lose the tags of some nodes, first of all of an
 * aggregation with a column that nobody reads. So the query is planned once more, without the
 * optimizer's rules that Spark lets one leave out: if both plans have the same operators in the same
 * order, the second one tells their places.
 */
public final class SeamarkPlan {
  private static final TreeNodeTag PLACE = new TreeNodeTag("seamark.place");
  /** The optimizer's rules that a plan for tracing keeps: some joins get their condition by a rule. */
  private static final String[][] KEPT = {{}, {".PushDownPredicates", ".ReorderJoin"}};
  private final ArrayList nodes = new ArrayList();
  private final ArrayList sources = new ArrayList();
  private LogicalPlan plan;

  /** The nodes of a plan, from its root down, whose class has a name that begins so. */
  public List nodes(TreeNode plan, String name) {
    ArrayList found = new ArrayList();
    collectNodes(plan, name, found);
    return found;
  }

  private static void collectNodes(TreeNode node, String name, ArrayList found) {
    if (nameOf(node).startsWith(name)) found.add(node);
    scala.collection.Iterator each = node.children().iterator();
    while (each.hasNext()) collectNodes((TreeNode) each.next(), name, found);
  }

  // --- the user's names

  /** Gives a uid to the first source in a plan, or to whatever keeps state at the root or below. */
  public void name(LogicalPlan plan, String tag, String uid, boolean ofSource) {
    if (ofSource ? isSource(plan) : !isStep(plan) && !(plan instanceof Union)) {
      List uids = named(plan, tag);
      uids.add(uid);
      plan.setTagValue(new TreeNodeTag(tag), uids);
      return;
    }
    // shared_stream.py makes steps anew; and a further union takes a union's inputs.
    scala.collection.Iterator each = plan.children().iterator();
    while (each.hasNext()) {
      LogicalPlan child = (LogicalPlan) each.next();
      if (!child.isStreaming()) continue;
      name(child, tag, uid, ofSource);
      if (ofSource) return;
    }
  }

  /** The uids at each node, null for none; of equal plans, equal nodes have equal indices. */
  public List names(LogicalPlan plan, String tag) {
    ArrayList found = new ArrayList();
    collectNames(plan, tag, found);
    return found;
  }

  private static void collectNames(LogicalPlan plan, String tag, ArrayList found) {
    if (!(plan instanceof SubqueryAlias) && !(plan instanceof View)) {
      List uids = named(plan, tag);
      found.add(uids.isEmpty() ? null : uids.toString());
    }
    scala.collection.Iterator each = plan.children().iterator();
    while (each.hasNext()) collectNames((LogicalPlan) each.next(), tag, found);
  }

  private static List named(LogicalPlan plan, String tag) {
    scala.Option uids = plan.getTagValue(new TreeNodeTag(tag));
    return uids.isDefined() ? new ArrayList((List) uids.get()) : new ArrayList();
  }

  private static boolean isSource(LogicalPlan plan) {
    return plan instanceof StreamingRelation || plan instanceof StreamingRelationV2;
  }

  /** Whether the node never keeps state. */
  private static boolean isStep(LogicalPlan plan) {
    return plan instanceof Project || plan instanceof Filter || plan instanceof Generate
        || plan instanceof SubqueryAlias;
  }

  /** The plan with watermarks that compare equal if column and delay do. */
  public LogicalPlan comparable(LogicalPlan plan) {
    if (!plan.containsPattern(TreePattern.EVENT_TIME_WATERMARK())) return plan;
    ArrayList below = new ArrayList();
    scala.collection.Iterator each = plan.children().iterator();
    while (each.hasNext()) below.add(comparable((LogicalPlan) each.next()));
    if (plan instanceof EventTimeWatermark) {
      EventTimeWatermark own = (EventTimeWatermark) plan;
      return new EventTimeWatermark(
          new UUID(0L, 0L), own.eventTime(), own.delay(), (LogicalPlan) below.get(0));
    }
    return (LogicalPlan) plan.withNewChildren(
        org.apache.spark.api.python.PythonUtils.toSeq(below));
  }

  /**
   * The plan without its watermarks; null if it has none. Its common table expressions have ids of their own: Spark takes
   * one definition for all references with its id, also for those of a branch with state.
   */
  public LogicalPlan withoutWatermarks(LogicalPlan plan) {
    if (!plan.containsPattern(TreePattern.EVENT_TIME_WATERMARK())) return null;
    LogicalPlan made = unwatched(plan);
    return made.containsPattern(TreePattern.CTE()) ? apart(made) : made;
  }

  private static LogicalPlan unwatched(LogicalPlan plan) {
    ArrayList below = new ArrayList();
    scala.collection.Iterator each = plan.children().iterator();
    while (each.hasNext()) below.add(unwatched((LogicalPlan) each.next()));
    if (plan instanceof EventTimeWatermark) return (LogicalPlan) below.get(0);
    return (LogicalPlan) plan.withNewChildren(
        org.apache.spark.api.python.PythonUtils.toSeq(below));
  }

  // --- the analysed plan

  /** Copies and numbers the plan; once. */
  public SeamarkPlan of(LogicalPlan analysed, String tag) {
    plan = (LogicalPlan) analysed.clone();
    if (plan.containsPattern(TreePattern.CTE())) {
      plan = apart(plan);
      plan.setAnalyzed();
    }
    number(plan, tag, new ArrayList());
    return this;
  }

  /**
   * The plan with common table expressions that have an id for each of their places. Spark puts one
   * definition in the stead of all references with its id, also of those in another branch: there
   * its nodes would have the places of the first branch.
   */
  private static LogicalPlan apart(LogicalPlan node) {
    ArrayList below = new ArrayList();
    scala.collection.Iterator each = node.children().iterator();
    while (each.hasNext()) below.add(apart((LogicalPlan) each.next()));
    LogicalPlan made = (LogicalPlan) node.withNewChildren(
        org.apache.spark.api.python.PythonUtils.toSeq(below));
    if (!(made instanceof WithCTE)) return made;
    HashMap ids = new HashMap();
    each = ((WithCTE) made).cteDefs().iterator();
    while (each.hasNext()) {
      ids.put(Long.valueOf(((CTERelationDef) each.next()).id()), Long.valueOf(CTERelationDef.newId()));
    }
    return (LogicalPlan) made.transformWithSubqueries(new NewIds(ids));
  }

  /** Gives definitions and references of common table expressions new ids. */
  private static final class NewIds extends scala.runtime.AbstractPartialFunction {
    private final HashMap ids;

    NewIds(HashMap ids) { this.ids = ids; }

    private Object idOf(Object node) {
      if (node instanceof CTERelationDef) return ids.get(Long.valueOf(((CTERelationDef) node).id()));
      if (!(node instanceof CTERelationRef)) return null;
      return ids.get(Long.valueOf(((CTERelationRef) node).cteId()));
    }

    public boolean isDefinedAt(Object node) { return idOf(node) != null; }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      Object id = idOf(node);
      if (id == null) return otherwise.apply(node);
      int place = node instanceof CTERelationDef ? 1 : 0;
      Object[] parts = new Object[((LogicalPlan) node).productArity()];
      for (int i = 0; i < parts.length; i++) {
        parts[i] = i == place ? id : ((LogicalPlan) node).productElement(i);
      }
      return ((LogicalPlan) node).makeCopy(parts);
    }
  }

  private void number(LogicalPlan node, String tag, List above) {
    node.setTagValue(PLACE, Integer.valueOf(nodes.size()));
    HashMap told = new HashMap();
    nodes.add(told);
    told.put("node", node);
    List uids = named(node, tag);
    uids.addAll(above);
    told.put("uids", uids);
    if (isSource(node)) {
      if (!sources.contains(node)) sources.add(node);
      told.put("source", Integer.valueOf(sources.indexOf(node)));
    } else if (node.isStreaming() && node.children().isEmpty() && !(node instanceof CTERelationRef)) {
      told.put("source", Integer.valueOf(-1));
    }
    scala.collection.Iterator each = node.children().iterator();
    while (each.hasNext()) number((LogicalPlan) each.next(), tag, uids);
    told.put("end", Integer.valueOf(nodes.size()));
  }

  /** The distinct sources, as Spark numbers them. */
  public List sources() { return sources; }

  /** The node at a place. */
  public LogicalPlan at(int place) { return (LogicalPlan) told(place).get("node"); }

  private HashMap told(int place) { return (HashMap) nodes.get(place); }

  private static String nameOf(Object node) { return node.getClass().getSimpleName(); }

  private static Integer placeOf(LogicalPlan node) {
    scala.Option place = node.getTagValue(PLACE);
    return place.isDefined() ? (Integer) place.get() : null;
  }

  // --- the plan that Spark runs

  /** Throws Spark's exception of a start if a query cannot run in its output mode. */
  public void check(LogicalPlan analysed, String mode) {
    UnsupportedOperationChecker.checkForStreaming(analysed, modeOf(mode));
  }

  private static OutputMode modeOf(String name) {
    if (name.equals("append")) return OutputMode.Append();
    return name.equals("update") ? OutputMode.Update() : OutputMode.Complete();
  }

  /**
   * An epoch of a query, as Spark plans it. With its `entry` in the offset log it is the first of a
   * run: Spark checks the state's metadata below `location` and writes it. With null it touches no
   * file and starts no Python process.
   */
  public QueryExecution epoch(
      SparkSession spark, LogicalPlan analysed, String mode, String location, long epoch, String entry)
      throws Exception {
    return epoch(spark.cloneSession(), analysed, modeOf(mode), location, epoch, entry);
  }

  private static QueryExecution epoch(
      SparkSession session, LogicalPlan analysed, OutputMode mode, String location, long epoch,
      String entry) throws Exception {
    SQLConf conf = session.sessionState().conf();
    OffsetSeqMetadata metadata = OffsetSeqMetadata.apply(
        entry != null ? entry : "{\"batchWatermarkMs\":0,\"batchTimestampMs\":0,\"conf\":{}}");
    // As a query does at its start: a setting not recorded by an older version gets the value it had
    // then.
    if (entry != null) OffsetSeqMetadata.setSessionConf(metadata, conf);
    conf.setConfString("spark.sql.adaptive.enabled", "false");
    conf.setConfString("spark.sql.cbo.enabled", "false");
    conf.setConfString("spark.sql.exchange.reuse", "false");
    Object[] known = {
      session, analysed, mode, location, UUID.randomUUID(), UUID.randomUUID(), Long.valueOf(epoch),
      scala.Option.empty(), metadata, WatermarkPropagator$.MODULE$.noop(), Boolean.valueOf(entry != null)
    };
    Constructor constructor = IncrementalExecution.class.getConstructors()[0];
    Object[] arguments = Arrays.copyOf(known, constructor.getParameterTypes().length);
    for (int i = known.length; i < arguments.length; i++) {  // other versions have others
      arguments[i] = IncrementalExecution$.class
          .getMethod("$lessinit$greater$default$" + (i + 1), new Class[0])
          .invoke(IncrementalExecution$.MODULE$, new Object[0]);
    }
    return (QueryExecution) constructor.newInstance(arguments);
  }

  /**
   * What the query is made of, as JSON; it is the union of `branches` plans. `parts` are its
   * operators with state and its scans of sources, each before those below it, `steps` the other
   * nodes on the way of the rows, `readings` the places of sources in the offset log, `tables`
   * whether it reads anything beside streams.
   */
  public String query(SparkSession spark, String mode, int branches) throws Exception {
    QueryExecution execution = epoch(spark, plan, mode, "nowhere", 0L, null);
    ArrayList parts = new ArrayList();
    ArrayList steps = new ArrayList();
    walk(execution.executedPlan(), null, null, parts, steps, new HashSet());
    boolean traced = locate(spark, mode, operators(parts), rulesOf(execution));
    List roots = roots(branches);
    Object branch = null;
    for (int i = parts.size() - 1; i >= 0; i--) {  // a scan below tells an operator's branch
      HashMap part = (HashMap) parts.get(i);
      Integer place = (Integer) part.get("place");
      for (int n = 0; place != null && n < roots.size(); n++) {
        if (place.intValue() >= ((Integer) roots.get(n)).intValue()) branch = Integer.valueOf(n);
      }
      part.put("branch", branch);
      HashMap told = place == null ? new HashMap() : told(place.intValue());
      part.put("name", place == null ? part.get("kind") : nameOf(told.get("node")));
      part.put("uids", place == null ? new ArrayList() : told.get("uids"));
      part.put("source", told.get("source"));
    }
    ArrayList readings = new ArrayList();
    for (int i = 0; i < nodes.size(); i++) {
      if (!told(i).containsKey("source")) continue;
      HashMap reading = new HashMap();
      reading.put("source", told(i).get("source"));
      reading.put("uids", told(i).get("uids"));
      reading.put("name", nameOf(at(i)));
      readings.add(reading);
    }
    HashMap found = new HashMap();
    found.put("parts", parts);
    found.put("steps", steps);
    found.put("readings", readings);
    found.put("traced", Boolean.valueOf(traced));
    found.put("tables", Boolean.valueOf(readsTables(plan)));
    return new ObjectMapper().writeValueAsString(found);
  }

  /** Whether a plan, or a subquery in it, reads anything that is no stream and not in the plan itself. */
  private static boolean readsTables(LogicalPlan plan) {
    scala.collection.Iterator each = plan.collectLeaves().iterator();
    while (each.hasNext()) {
      LogicalPlan leaf = (LogicalPlan) each.next();
      if (!leaf.isStreaming() && !(leaf instanceof LocalRelation)) return true;
    }
    each = plan.subqueriesAll().iterator();
    while (each.hasNext()) if (readsTables((LogicalPlan) each.next())) return true;
    return false;
  }

  /** The operators of a plan of Spark's, as `number kind`. */
  public List operators(SparkPlan planned) {
    ArrayList parts = new ArrayList();
    walk(planned, null, null, parts, new ArrayList(), new HashSet());
    ArrayList found = new ArrayList();
    for (int i = 0; i < parts.size(); i++) {
      HashMap part = (HashMap) parts.get(i);
      if (part.get("number") != null) found.add(part.get("number") + " " + part.get("kind"));
    }
    return found;
  }

  /** Whether rows of the stream come through the node. */
  private static boolean walk(
      SparkPlan node, Integer place, Object above, List parts, List steps, HashSet known) {
    LogicalPlan made = node.logicalLink().isDefined() ? (LogicalPlan) node.logicalLink().get() : null;
    if (made != null && placeOf(made) != null) place = placeOf(made);
    boolean streaming = node instanceof StreamingRelationExec;
    Object number = null;
    if (node instanceof StatefulOperator) {
      StatefulOperatorStateInfo info =
          (StatefulOperatorStateInfo) ((StatefulOperator) node).stateInfo().get();
      number = Long.valueOf(info.operatorId());
    }
    boolean step = !streaming && number == null;
    if (streaming || number != null && known.add(number)) {
      HashMap part = new HashMap();
      part.put("number", number);
      part.put("kind", nameOf(node));
      part.put("place", place);
      part.put("above", above);
      if (number != null) part.put("columns", columnsOf(node));
      parts.add(part);
    }
    scala.collection.Iterator each = node.children().iterator();
    while (each.hasNext()) {
      streaming |=
          walk((SparkPlan) each.next(), place, number == null ? above : number, parts, steps, known);
    }
    if (streaming && step) {
      steps.add(Arrays.asList(new Object[] {nameOf(made == null ? node : (Object) made), nameOf(node)}));
    }
    return streaming;
  }

  /** The names of the columns by which an operator spreads its state; an aggregation's whole row. */
  private static List columnsOf(SparkPlan node) {
    boolean whole =
        node instanceof StateStoreSaveExec || node instanceof SessionWindowStateStoreSaveExec;
    ArrayList names = new ArrayList();
    if (whole) addNames(node.output(), names);
    scala.collection.Iterator each = node.requiredChildDistribution().iterator();
    while (!whole && each.hasNext()) {
      Object spread = each.next();
      if (spread instanceof StatefulOpClusteredDistribution) {
        addNames(((StatefulOpClusteredDistribution) spread).expressions(), names);
      }
    }
    return names;
  }

  private static void addNames(scala.collection.Iterable expressions, List names) {
    scala.collection.Iterator each = expressions.iterator();
    while (each.hasNext()) {
      scala.collection.Iterator read = ((Expression) each.next()).references().iterator();
      while (read.hasNext()) names.add(((Attribute) read.next()).name());
    }
  }

  private static List operators(List parts) {
    ArrayList found = new ArrayList();
    for (int i = 0; i < parts.size(); i++) {
      if (((HashMap) parts.get(i)).get("number") != null) found.add(parts.get(i));
    }
    return found;
  }

  /** Puts the operators' places right, null where it is not known; and returns whether all are. */
  private boolean locate(SparkSession spark, String mode, List own, List rules) throws Exception {
    if (own.isEmpty()) return true;
    HashSet seen = new HashSet();
    for (int k = 0; k < KEPT.length; k++) {
      StringBuilder excluded = new StringBuilder();
      for (int i = 0; i < rules.size(); i++) {
        boolean kept = false;
        for (int j = 0; j < KEPT[k].length; j++) kept |= ((String) rules.get(i)).endsWith(KEPT[k][j]);
        if (!kept) excluded.append(rules.get(i)).append(',');
      }
      SparkSession session = spark.cloneSession();
      SQLConf conf = session.sessionState().conf();
      conf.setConfString("spark.sql.optimizer.excludedRules", excluded.toString());
      // Else Spark wants a single column with a watermark, also among those that nobody reads.
      conf.setConfString("spark.sql.streaming.statefulOperator.allowMultiple", "false");
      ArrayList parts = new ArrayList();
      try {
        SparkPlan planned = epoch(session, plan, modeOf(mode), "nowhere", 0L, null).executedPlan();
        walk(planned, null, null, parts, new ArrayList(), new HashSet());
      } catch (Exception needsARule) {
        continue;
      } catch (AssertionError needsARule) {
        continue;
      }
      List traced = operators(parts);
      boolean same = traced.size() == own.size();
      for (int i = 0; i < traced.size(); i++) {
        HashMap part = (HashMap) traced.get(i);
        same = same && part.get("kind").equals(((HashMap) own.get(i)).get("kind"));
        seen.add(part.get("kind") + " " + origin(part));
      }
      for (int i = 0; same && i < own.size(); i++) {
        ((HashMap) own.get(i)).put("place", origin((HashMap) traced.get(i)));
      }
      if (same) return true;
    }
    for (int i = 0; i < own.size(); i++) {  // a rule has made one operator of two
      HashMap part = (HashMap) own.get(i);
      Object place = origin(part);
      part.put("place", seen.contains(part.get("kind") + " " + place) ? place : null);
    }
    return false;
  }

  /** The place of an operator: a filter pushed below it gives it the filter's tag. */
  private Object origin(HashMap part) {
    Integer place = (Integer) part.get("place");
    while (place != null && (isStep(at(place.intValue())) || at(place.intValue()) instanceof View)) {
      place = Integer.valueOf(place.intValue() + 1);
    }
    return place;
  }

  /** The names of the optimizer's rules that Spark lets one leave out: it warns of each other one. */
  private static List rulesOf(QueryExecution execution) {
    ArrayList names = new ArrayList();
    Optimizer optimizer = execution.sparkSession().sessionState().optimizer();
    scala.collection.Iterator batches = optimizer.batches().iterator();
    while (batches.hasNext()) {
      scala.collection.Iterator rules =
          ((scala.collection.Iterable) ((scala.Product) batches.next()).productElement(2)).iterator();
      while (rules.hasNext()) {
        String name = ((Rule) rules.next()).ruleName();
        if (!optimizer.nonExcludableRules().contains(name)) names.add(name);
      }
    }
    return names;
  }

  /** The places of the branches' roots, below one union or one in another. */
  private List roots(int branches) {
    ArrayList roots = new ArrayList();
    roots.add(Integer.valueOf(0));
    for (int n = 0; roots.size() < branches; n++) {
      int place = ((Integer) roots.get(n)).intValue();
      if (!(at(place) instanceof Union)) continue;
      roots.remove(n);
      ArrayList below = new ArrayList();
      int end = ((Integer) told(place).get("end")).intValue();
      for (int child = place + 1; child < end;
          child = ((Integer) told(child).get("end")).intValue()) {
        below.add(Integer.valueOf(child));
      }
      roots.addAll(n--, below);
    }
    return roots;
  }

  // --- watermarks

  /** The first operator of a physical plan whose watermark comes from a reused part; null if none. */
  public String withoutWatermark(SparkPlan node) {
    boolean follows = node instanceof StatefulOperator && !(node instanceof StreamingGlobalLimitExec);
    if (follows && hides(node)) return nameOf(node);
    scala.collection.Iterator each = node.children().iterator();
    while (each.hasNext()) {
      String found = withoutWatermark((SparkPlan) each.next());
      if (found != null) return found;
    }
    return null;
  }

  private static boolean hides(SparkPlan node) {
    if (node instanceof ReusedExchangeExec) return holds(((ReusedExchangeExec) node).child());
    scala.collection.Iterator each = node.children().iterator();
    while (each.hasNext()) if (hides((SparkPlan) each.next())) return true;
    return false;
  }

  private static boolean holds(SparkPlan node) {
    if (node instanceof EventTimeWatermarkExec) return true;
    scala.collection.Iterator each = node.children().iterator();
    while (each.hasNext()) if (holds((SparkPlan) each.next())) return true;
    return false;
  }
}
