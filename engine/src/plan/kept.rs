//! What a changed plan can keep of the state of the plan before it.
//!
//! A stateful operator of the new plan keeps the state of one of the old plan when both do the same work on the same inputs,
//! spread in the same way ([`Signatures`]). Everything below it is then kept too. The topmost operators that are
//! kept are *boundaries*: above them all is new, so each must be able to give its current output out of its state
//! ([`Replay`]); one that cannot is rebuilt, and what is below it is tried.

use std::collections::BTreeMap;

use super::fragment::Child;
use super::signature::Signatures;
use super::{FragmentInput, FragmentPlan};
use crate::build::build_operator;
use crate::error::Result;
use crate::operator::Replay;

/// An operator, or a leaf, of a plan in fragments.
pub(crate) type Spot = (usize, usize);

/// What becomes of the state of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes on with the state that it has.
    Kept,
    /// It is filled anew; why.
    Rebuilt(String),
    /// Of an input: only its changes are read.
    Changes,
    /// Of an input: it is read from its beginning.
    Contents,
}

/// One line of what an ALTER would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorFate {
    /// How deep in the plan.
    pub depth: usize,
    /// The operator or input.
    pub operator: String,
    /// What becomes of it.
    pub fate: Fate,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// For each operator of the new plan that is kept, stateless ones among them, the one of the old plan.
    pub(crate) nodes: BTreeMap<Spot, Spot>,
    /// For each leaf of the new plan that is kept.
    pub(crate) leaves: BTreeMap<Spot, Spot>,
    /// The topmost stateful operators that are kept, and how they give their output.
    pub(crate) boundaries: BTreeMap<Spot, Replay>,
    /// Every stateful operator and every input of the new plan, parents first.
    pub(crate) fates: Vec<OperatorFate>,
}

impl Kept {
    /// Compares two plans, given the number of tasks of each of their fragments.
    pub(crate) fn new(old: Side<'_>, new: Side<'_>) -> Result<Self> {
        let of = Signatures::new(old.plan)?;
        let by_number = |numbers: &[Vec<u64>]| -> BTreeMap<u64, Spot> {
            let all = numbers.iter().enumerate().flat_map(|(fragment, nodes)| {
                nodes.iter().enumerate().map(move |(node, &number)| (number, (fragment, node)))
            });
            all.collect()
        };
        let (trees, alone) = (by_number(&of.trees), by_number(&of.alone));
        let walk = Walk { old, new, of_new: Signatures::new(new.plan)?, trees, alone };
        walk.kept()
    }

    /// Nothing is kept, for one and the same reason.
    pub(crate) fn nothing(plan: &FragmentPlan, reason: &str) -> Result<Self> {
        let new = Side { plan, tasks: &[] };
        let of_new = Signatures::new(plan)?;
        let nowhere = BTreeMap::new();
        let walk = Walk { old: new, new, of_new, trees: nowhere.clone(), alone: nowhere };
        let mut kept = walk.kept()?;
        for line in &mut kept.fates {
            if let Fate::Rebuilt(why) = &mut line.fate {
                *why = reason.to_string();
            }
        }
        Ok(kept)
    }

    /// Whether any state is.
    pub(crate) fn is_empty(&self) -> bool {
        self.boundaries.is_empty()
    }
}

/// A plan, and the number of tasks of each of its fragments.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    pub(crate) plan: &'a FragmentPlan,
    pub(crate) tasks: &'a [usize],
}

struct Walk<'a> {
    old: Side<'a>,
    new: Side<'a>,
    of_new: Signatures,
    /// The operators of the old plan, by their signatures: with what is below, and alone.
    trees: BTreeMap<u64, Spot>,
    alone: BTreeMap<u64, Spot>,
}

impl Walk<'_> {
    fn kept(&self) -> Result<Kept> {
        let mut kept = Kept::default();
        let last = self.new.plan.fragments.len() - 1;
        self.visit(&mut kept, last, self.new.plan.fragments[last].root, 0)?;
        Ok(kept)
    }

    fn visit(&self, kept: &mut Kept, fragment: usize, child: Child, depth: usize) -> Result<()> {
        let number = match child {
            Child::Input(number) => return self.visit_input(kept, fragment, number, depth),
            Child::Node(number) => number,
        };
        let node = &self.new.plan.fragments[fragment].nodes[number];
        let operator = build_operator(&node.plan)?;
        let mut below = depth;
        if !operator.state_tables().is_empty() {
            let spot = (fragment, number);
            let fate = match self.counterpart(spot) {
                Err(why) => Fate::Rebuilt(why),
                Ok(old) => match operator.replay() {
                    Replay::Never(why) => Fate::Rebuilt(why.to_string()),
                    replay => {
                        kept.boundaries.insert(spot, replay);
                        return self.keep(kept, spot, old, depth);
                    }
                },
            };
            kept.fates.push(OperatorFate { depth, operator: node.plan.describe_node(), fate });
            below += 1;
        }
        node.children.iter().try_for_each(|child| self.visit(kept, fragment, *child, below))
    }

    fn visit_input(
        &self,
        kept: &mut Kept,
        fragment: usize,
        number: usize,
        depth: usize,
    ) -> Result<()> {
        match &self.new.plan.fragments[fragment].inputs[number] {
            FragmentInput::Exchange { from, .. } => from.iter().try_for_each(|&sender| {
                self.visit(kept, sender, self.new.plan.fragments[sender].root, depth)
            }),
            FragmentInput::Scan(scan, _) => {
                let operator = format!("Scan {}", scan.name);
                kept.fates.push(OperatorFate { depth, operator, fate: Fate::Contents });
                Ok(())
            }
            FragmentInput::Values(_) => Ok(()),
        }
    }

    /// The operator of the old plan that does the same; else why there is none.
    fn counterpart(&self, (fragment, node): Spot) -> std::result::Result<Spot, String> {
        if let Some(&found) = self.trees.get(&self.of_new.trees[fragment][node]) {
            let is_spread = self.new.tasks.get(fragment) == self.old.tasks.get(found.0);
            return is_spread.then_some(found).ok_or_else(|| "another number of tasks".to_string());
        }
        let is_known = self.alone.contains_key(&self.of_new.alone[fragment][node]);
        let why = if is_known { "what it reads has changed" } else { "it was not there before" };
        Err(why.to_string())
    }

    /// An operator is kept, with everything below it: both trees have the same shape.
    fn keep(&self, kept: &mut Kept, new: Spot, old: Spot, depth: usize) -> Result<()> {
        kept.nodes.insert(new, old);
        let node = &self.new.plan.fragments[new.0].nodes[new.1];
        let mut below = depth;
        if !build_operator(&node.plan)?.state_tables().is_empty() {
            let operator = node.plan.describe_node();
            kept.fates.push(OperatorFate { depth, operator, fate: Fate::Kept });
            below += 1;
        }
        let others = &self.old.plan.fragments[old.0].nodes[old.1].children;
        let mut pairs = node.children.iter().zip(others);
        pairs.try_for_each(|(&child, &other)| {
            self.keep_child(kept, (new.0, child), (old.0, other), below)
        })
    }

    fn keep_child(
        &self,
        kept: &mut Kept,
        new: (usize, Child),
        old: (usize, Child),
        depth: usize,
    ) -> Result<()> {
        let (number, other) = match (new.1, old.1) {
            (Child::Node(number), Child::Node(other)) => {
                return self.keep(kept, (new.0, number), (old.0, other), depth);
            }
            (Child::Input(number), Child::Input(other)) => (number, other),
            _ => return Err(crate::error::EngineError::internal("plans of different shapes")),
        };
        kept.leaves.insert((new.0, number), (old.0, other));
        let input = &self.new.plan.fragments[new.0].inputs[number];
        match (input, &self.old.plan.fragments[old.0].inputs[other]) {
            (
                FragmentInput::Exchange { from, .. },
                FragmentInput::Exchange { from: others, .. },
            ) => from.iter().zip(others).try_for_each(|(&sender, &other)| {
                let new = (sender, self.new.plan.fragments[sender].root);
                let old = (other, self.old.plan.fragments[other].root);
                self.keep_child(kept, new, old, depth)
            }),
            (FragmentInput::Scan(scan, _), _) => {
                let operator = format!("Scan {}", scan.name);
                kept.fates.push(OperatorFate { depth, operator, fate: Fate::Changes });
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
