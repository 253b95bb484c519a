//! The conditions of transactions.

use crate::log::parse;
use crate::mistake::Mistake;
use crate::read::View;
use crate::types::Version;
use api::KeyRange;
use api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use api::etcdserverpb::request_op::Request;
use api::etcdserverpb::{Compare, RequestOp, TxnRequest};
use std::cmp::Ordering;
use std::ops::ControlFlow;

/// Which branches a transaction takes: its own choice, then those of the transactions nested in that branch, depth first.
///
/// All of them are decided before any operation runs, so a nested condition does not see what the outer transaction writes.
pub(crate) struct Path {
    choices: Vec<bool>,
    next: usize,
    /// How many conditions were looked at.
    compared: u64,
}

impl Path {
    pub(crate) fn choose(view: &impl View, request: &TxnRequest) -> Path {
        let mut path = Path { choices: Vec::new(), next: 0, compared: 0 };
        path.extend(view, request);
        path
    }

    /// How many conditions were looked at: of each transaction those up to the first that does not hold.
    pub(crate) fn compared(&self) -> u64 {
        self.compared
    }

    /// Recurses by nesting, at most `TXN_NESTING_MAX` deep.
    fn extend(&mut self, view: &impl View, request: &TxnRequest) {
        let succeeded = request.compare.iter().all(|compare| {
            self.compared += 1;
            holds(view, compare)
        });
        self.choices.push(succeeded);
        for op in branch(request, succeeded) {
            if let Some(Request::RequestTxn(nested)) = &op.request {
                self.extend(view, nested);
            }
        }
    }

    /// The choice of the transaction that is met next.
    pub(crate) fn step(&mut self) -> bool {
        let choice = self.choices[self.next];
        self.next += 1;
        choice
    }

    /// Starts over.
    pub(crate) fn rewind(&mut self) {
        self.next = 0;
    }
}

/// The operations of the branch taken.
pub(crate) fn branch(request: &TxnRequest, succeeded: bool) -> &[RequestOp] {
    if succeeded { &request.success } else { &request.failure }
}

/// Whether a condition holds for every key it names. Of keys that do not exist, all numbers are 0 and no value is anything.
fn holds(view: &impl View, compare: &Compare) -> bool {
    let range = KeyRange::new(&compare.key, &compare.range_end);
    let (mut found, mut holds) = (false, true);
    view.scan(range, view.current(), &mut |_, version| {
        found = true;
        holds = met(compare, against(view, compare, version));
        if holds { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    if found { holds } else { compare.target() != CompareTarget::Value && met(compare, 0.cmp(&number(compare))) }
}

/// How a version compares with what the condition names.
fn against(view: &impl View, compare: &Compare, version: &Version) -> Ordering {
    match CompareTarget::try_from(compare.target) {
        Ok(CompareTarget::Version) => version.version.cmp(&number(compare)),
        Ok(CompareTarget::Create) => version.create.cmp(&number(compare)),
        Ok(CompareTarget::Mod) if Mistake::ComparesOtherRevision.is_planted() => version.create.cmp(&number(compare)),
        Ok(CompareTarget::Mod) => version.rev.main.cmp(&number(compare)),
        Ok(CompareTarget::Lease) => view.stored(version.loc, |stored| parse(stored).lease).cmp(&number(compare)),
        Ok(CompareTarget::Value) => {
            let value = match &compare.target_union {
                Some(TargetUnion::Value(value)) => &value[..],
                _ => &[],
            };
            view.stored(version.loc, |stored| parse(stored).value.cmp(value))
        }
        Err(_) => Ordering::Equal,
    }
}

/// The number a condition names; 0 when it names none, or one of another target.
fn number(compare: &Compare) -> i64 {
    match (CompareTarget::try_from(compare.target), &compare.target_union) {
        (Ok(CompareTarget::Version), Some(TargetUnion::Version(number)))
        | (Ok(CompareTarget::Create), Some(TargetUnion::CreateRevision(number)))
        | (Ok(CompareTarget::Mod), Some(TargetUnion::ModRevision(number)))
        | (Ok(CompareTarget::Lease), Some(TargetUnion::Lease(number))) => *number,
        _ => 0,
    }
}

fn met(compare: &Compare, order: Ordering) -> bool {
    match CompareResult::try_from(compare.result) {
        Ok(CompareResult::Equal) => order.is_eq(),
        Ok(CompareResult::NotEqual) => order.is_ne(),
        Ok(CompareResult::Greater) => order.is_gt(),
        Ok(CompareResult::Less) => order.is_lt(),
        Err(_) => true,
    }
}
