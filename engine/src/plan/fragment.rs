//! Cuts a stream plan into fragments at exchanges.
//!
//! A fragment is a tree of operators that runs as one task per partition. Stateless nodes stay with their input; a keyed
//! node asks for its input distributed by its key and gets an exchange only where the input is not already so. A union
//! needs no task of its own: its branches feed the same exchange.

use std::fmt;

use arrow::datatypes::SchemaRef;

use super::construct::column_of;
use super::{JoinKind, PlanNode, RelationId, Scan, StreamPlan};

/// Number of a fragment in its plan.
pub type FragmentId = usize;

/// How rows are spread over the tasks of a fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// One task has them all.
    Single,
    /// Equal values of these columns meet in one task.
    Hash(Vec<usize>),
    /// Every task has them all.
    Broadcast,
    /// A row is somewhere; the same row always in the same place.
    Any,
}

/// How many tasks a fragment has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parallelism {
    /// One.
    Single,
    /// The configured number.
    Full,
    /// As many as the relation has partitions.
    Like(RelationId),
}

/// Where a leaf of a fragment gets its rows from.
#[derive(Clone, Debug)]
pub enum FragmentInput {
    /// Other fragments of the plan, which send by this distribution.
    Exchange {
        /// Who sends.
        from: Vec<FragmentId>,
        /// How.
        distribution: Distribution,
        /// Columns.
        schema: SchemaRef,
    },
    /// A relation.
    Scan(Scan, SchemaRef),
    /// Constant rows.
    Values(arrow::array::RecordBatch),
}

/// A child of a node in a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child {
    /// Another node.
    Node(usize),
    /// An input.
    Input(usize),
}

/// One operator of a fragment.
#[derive(Clone, Debug)]
pub struct FragmentNode {
    /// The plan node, with its inputs (for their schemas and properties).
    pub plan: StreamPlan,
    /// In order of the operator's inputs.
    pub children: Vec<Child>,
    /// How the rows of each input are spread over the tasks.
    pub distributions: Vec<Distribution>,
}

/// One fragment.
#[derive(Clone, Debug)]
pub struct Fragment {
    /// Children before parents.
    pub nodes: Vec<FragmentNode>,
    /// Leaves.
    pub inputs: Vec<FragmentInput>,
    /// What gives the fragment's output.
    pub root: Child,
    /// Number of tasks.
    pub parallelism: Parallelism,
}

/// A plan in fragments. The last one is the root: its output is the plan's.
#[derive(Clone, Debug)]
pub struct FragmentPlan {
    /// Senders before receivers.
    pub fragments: Vec<Fragment>,
    /// Spread of the root's output.
    pub distribution: Distribution,
}

impl FragmentPlan {
    /// Cuts the plan. The root is distributed so that each row's changes meet in one task (a view's store).
    pub fn new(plan: &StreamPlan) -> Self {
        let mut cutter = Cutter { fragments: Vec::new() };
        let branches = cutter.place(plan);
        let all: Vec<usize> = (0..plan.schema.fields().len()).collect();
        let key = plan.properties.unique_key.clone().filter(|key| !key.is_empty());
        let wanted = match (&plan.properties.unique_key, plan.properties.append_only) {
            (Some(key), _) if key.is_empty() => Distribution::Single,
            (None, true) => Distribution::Any,
            _ if all.is_empty() => Distribution::Single,
            _ => Distribution::Hash(key.unwrap_or(all)),
        };
        let root = cutter.ensure(branches, &wanted, plan);
        let distribution = root.distribution.clone();
        cutter.finish(root);
        Self { fragments: cutter.fragments, distribution }
    }
}

/// A fragment being built, and how its output is spread.
#[derive(Clone, Debug)]
struct Branch {
    fragment: Fragment,
    distribution: Distribution,
}

struct Cutter {
    fragments: Vec<Fragment>,
}

impl Cutter {
    /// Places a plan; a union gives several branches whose rows together are the output.
    fn place(&mut self, plan: &StreamPlan) -> Vec<Branch> {
        match &plan.node {
            PlanNode::Scan(scan) => {
                let input = FragmentInput::Scan(scan.clone(), plan.schema.clone());
                vec![Branch::leaf(input, Parallelism::Like(scan.relation), Distribution::Any)]
            }
            PlanNode::Values(rows) => {
                let input = FragmentInput::Values(rows.clone());
                vec![Branch::leaf(input, Parallelism::Single, Distribution::Single)]
            }
            PlanNode::Union => plan.inputs.iter().flat_map(|input| self.place(input)).collect(),
            PlanNode::FilterProject(_)
            | PlanNode::Unnest(_)
            | PlanNode::Watermark(_)
            | PlanNode::LateFilter(_)
            | PlanNode::EmitOnClose(_) => {
                let branches = self.place(&plan.inputs[0]);
                branches.into_iter().map(|branch| branch.on_top(plan)).collect()
            }
            PlanNode::Aggregate(node) => {
                let wanted = hash_or_single(&node.group);
                vec![self.unary(plan, &wanted)]
            }
            PlanNode::TopN(node) => {
                let wanted = hash_or_single(&node.partition);
                vec![self.unary(plan, &wanted)]
            }
            PlanNode::SessionWindow(node) => {
                let wanted = hash_or_single(&node.partition);
                vec![self.unary(plan, &wanted)]
            }
            PlanNode::SetOperation(_) => {
                let all: Vec<usize> = (0..plan.schema.fields().len()).collect();
                vec![self.binary(plan, &hash_or_single(&all), &hash_or_single(&all))]
            }
            PlanNode::Join(join) if !join.left_keys.is_empty() => {
                let left = Distribution::Hash(join.left_keys.clone());
                let right = Distribution::Hash(join.right_keys.clone());
                vec![self.binary(plan, &left, &right)]
            }
            PlanNode::Join(join) if matches!(join.kind, JoinKind::Right | JoinKind::Full) => {
                vec![self.binary(plan, &Distribution::Single, &Distribution::Single)]
            }
            PlanNode::Join(_) => {
                let all: Vec<usize> = (0..plan.inputs[0].schema.fields().len()).collect();
                let left = hash_or_single(&all);
                vec![self.binary(plan, &left, &Distribution::Broadcast)]
            }
        }
    }

    fn unary(&mut self, plan: &StreamPlan, wanted: &Distribution) -> Branch {
        let branches = self.place(&plan.inputs[0]);
        self.ensure(branches, wanted, &plan.inputs[0]).on_top(plan)
    }

    fn binary(&mut self, plan: &StreamPlan, left: &Distribution, right: &Distribution) -> Branch {
        let left_branches = self.place(&plan.inputs[0]);
        let left = self.ensure(left_branches, left, &plan.inputs[0]);
        let right_branches = self.place(&plan.inputs[1]);
        // The right side shares the left's tasks, so it is always received there.
        let mut right = match (self.ensure(right_branches, right, &plan.inputs[1]), right) {
            (branch, Distribution::Hash(columns))
                if branch.distribution != Distribution::Hash(columns.clone()) =>
            {
                self.receive(vec![branch], &Distribution::Hash(columns.clone()), &plan.inputs[1])
            }
            (branch, _) => branch,
        };
        let mut left = left;
        if let PlanNode::Join(join) = &plan.node
            && !join.left_keys.is_empty()
            && left.distribution != Distribution::Hash(join.left_keys.clone())
        {
            let wanted = Distribution::Hash(join.left_keys.clone());
            left = self.receive(vec![left], &wanted, &plan.inputs[0]);
        }
        if matches!(plan.node, PlanNode::SetOperation(_)) && left.distribution != right.distribution
        {
            let all = hash_or_single(&(0..plan.schema.fields().len()).collect::<Vec<_>>());
            left = self.receive(vec![left], &all, &plan.inputs[0]);
            right = self.receive(vec![right], &all, &plan.inputs[1]);
        }
        left.merge(right, plan)
    }

    /// One branch in which the rows are spread as wanted.
    fn ensure(
        &mut self,
        branches: Vec<Branch>,
        wanted: &Distribution,
        plan: &StreamPlan,
    ) -> Branch {
        if let [branch] = branches.as_slice()
            && branch.satisfies(wanted)
        {
            return branches.into_iter().next().expect("one branch");
        }
        self.receive(branches, wanted, plan)
    }

    /// Cuts: the branches become fragments that send to a new branch.
    fn receive(
        &mut self,
        branches: Vec<Branch>,
        wanted: &Distribution,
        plan: &StreamPlan,
    ) -> Branch {
        let all: Vec<usize> = (0..plan.schema.fields().len()).collect();
        let wanted = match wanted {
            Distribution::Any => hash_or_single(&all),
            other => other.clone(),
        };
        let from = branches.into_iter().map(|branch| self.finish(branch)).collect();
        let parallelism = match wanted {
            Distribution::Single => Parallelism::Single,
            _ => Parallelism::Full,
        };
        let input = FragmentInput::Exchange {
            from,
            distribution: wanted.clone(),
            schema: plan.schema.clone(),
        };
        Branch::leaf(input, parallelism, wanted)
    }

    fn finish(&mut self, branch: Branch) -> FragmentId {
        self.fragments.push(branch.fragment);
        self.fragments.len() - 1
    }
}

impl Branch {
    fn leaf(input: FragmentInput, parallelism: Parallelism, distribution: Distribution) -> Self {
        let root = Child::Input(0);
        let fragment = Fragment { nodes: vec![], inputs: vec![input], root, parallelism };
        Self { fragment, distribution }
    }

    fn satisfies(&self, wanted: &Distribution) -> bool {
        match (&self.distribution, wanted) {
            (_, Distribution::Any) => true,
            (Distribution::Single, Distribution::Single) => {
                self.fragment.parallelism == Parallelism::Single
            }
            (Distribution::Hash(have), Distribution::Hash(want)) => {
                self.fragment.parallelism == Parallelism::Full
                    && have.iter().all(|column| want.contains(column))
            }
            _ => false,
        }
    }

    /// The node on top of this branch.
    fn on_top(mut self, plan: &StreamPlan) -> Self {
        let children = vec![self.fragment.root];
        let distributions = vec![self.distribution.clone()];
        self.distribution = self.distribution_above(plan);
        self.fragment.nodes.push(FragmentNode { plan: plan.clone(), children, distributions });
        self.fragment.root = Child::Node(self.fragment.nodes.len() - 1);
        self
    }

    /// Both branches in one fragment below a node of two inputs.
    fn merge(mut self, right: Self, plan: &StreamPlan) -> Self {
        let (nodes, inputs) = (self.fragment.nodes.len(), self.fragment.inputs.len());
        let shift = |child: Child| match child {
            Child::Node(node) => Child::Node(node + nodes),
            Child::Input(input) => Child::Input(input + inputs),
        };
        let children = vec![self.fragment.root, shift(right.fragment.root)];
        for mut node in right.fragment.nodes {
            node.children = node.children.into_iter().map(shift).collect();
            self.fragment.nodes.push(node);
        }
        self.fragment.inputs.extend(right.fragment.inputs);
        let distributions = vec![self.distribution.clone(), right.distribution];
        self.distribution = self.distribution_above(plan);
        self.fragment.nodes.push(FragmentNode { plan: plan.clone(), children, distributions });
        self.fragment.root = Child::Node(self.fragment.nodes.len() - 1);
        self
    }

    /// How the node's output is spread, given that of its (left) input.
    fn distribution_above(&self, plan: &StreamPlan) -> Distribution {
        let Distribution::Hash(columns) = &self.distribution else {
            return self.distribution.clone();
        };
        let moved = |position: &dyn Fn(usize) -> Option<usize>| {
            let columns = columns.iter().map(|&column| position(column)).collect::<Option<_>>();
            columns.map_or(Distribution::Any, Distribution::Hash)
        };
        match &plan.node {
            PlanNode::FilterProject(node) => match &node.exprs {
                None => self.distribution.clone(),
                Some(exprs) => moved(&|column| {
                    exprs.iter().position(|(expr, _)| column_of(expr) == Some(column))
                }),
            },
            PlanNode::Aggregate(node) => {
                moved(&|column| node.group.iter().position(|&group| group == column))
            }
            PlanNode::SessionWindow(node) => {
                moved(&|column| node.columns.iter().position(|&given| given == column))
            }
            PlanNode::Unnest(node) => {
                moved(&|column| (!node.columns.contains(&column)).then_some(column))
            }
            // Rows padded with NULLs lie where their partner's key was hashed to.
            PlanNode::Join(join) if matches!(join.kind, JoinKind::Right | JoinKind::Full) => {
                Distribution::Any
            }
            _ => self.distribution.clone(),
        }
    }
}

fn hash_or_single(columns: &[usize]) -> Distribution {
    if columns.is_empty() { Distribution::Single } else { Distribution::Hash(columns.to_vec()) }
}

impl fmt::Display for FragmentPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (id, fragment) in self.fragments.iter().enumerate() {
            let parallelism = match fragment.parallelism {
                Parallelism::Single => "1 task".to_string(),
                Parallelism::Full => "all tasks".to_string(),
                Parallelism::Like(_) => "a task for each partition".to_string(),
            };
            let role = if id + 1 == self.fragments.len() { ", root" } else { "" };
            writeln!(f, "Fragment {id} ({parallelism}{role})")?;
            fragment.write(f, fragment.root, 1)?;
        }
        Ok(())
    }
}

impl Fragment {
    fn write(&self, f: &mut fmt::Formatter<'_>, child: Child, depth: usize) -> fmt::Result {
        write!(f, "{:indent$}", "", indent = depth * 2)?;
        match child {
            Child::Node(node) => {
                writeln!(f, "{}", self.nodes[node].plan.describe_node())?;
                for &child in &self.nodes[node].children {
                    self.write(f, child, depth + 1)?;
                }
            }
            Child::Input(input) => match &self.inputs[input] {
                FragmentInput::Scan(scan, _) => writeln!(f, "Scan {}", scan.name)?,
                FragmentInput::Values(rows) => writeln!(f, "Values ({} rows)", rows.num_rows())?,
                FragmentInput::Exchange { from, distribution, schema } => {
                    let from = from.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                    let how = match distribution {
                        Distribution::Hash(columns) => {
                            let names = columns.iter().map(|&c| schema.field(c).name().as_str());
                            format!("hash [{}]", names.collect::<Vec<_>>().join(", "))
                        }
                        other => format!("{other:?}").to_lowercase(),
                    };
                    writeln!(f, "Exchange {how} from fragment {from}")?;
                }
            },
        }
        Ok(())
    }
}
