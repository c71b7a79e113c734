//! Interval joins: what the condition of a join says about event time, so that state can be forgotten by watermark.
//!
//! ```text
//!   b.ts BETWEEN a.ts - '1 minute' AND a.ts + '5 minutes',  watermarks on a.ts and b.ts
//!     b.ts <= a.ts + 5 min:  rows of b that are to come are of the watermark or later, so a row of `a` matches none of them
//!                            as soon as the watermark is behind a.ts + 5 min
//!     a.ts <= b.ts + 1 min:  likewise, a row of `b` as soon as it is behind b.ts + 1 min
//! ```
//!
//! Only inputs that append are joined so: a row that is behind the watermark is late, and dropped; of a table that would be a change
//! or a delete, and the view wrong for ever. Times that the plan cannot see to lie a fixed time apart are no bounds.

use datafusion::physical_expr::expressions::{BinaryExpr, Literal};
use datafusion::physical_expr::split_conjunction;
use datafusion_common::ScalarValue;
use datafusion_common::arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion_expr::Operator;
use millstream_engine::plan::{self, CloseColumn, Interval, Join, JoinKind, StreamPlan};

use crate::expr::column_of;

/// In microseconds. Continuous queries reckon in UTC, where days have one length.
const DAY_US: i64 = 86_400_000_000;
/// The shortest and the longest month.
const MONTH_US: [i64; 2] = [28 * DAY_US, 31 * DAY_US];

/// A column and what is added to it: at least, at most, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moved {
    column: usize,
    by: [i64; 2],
}

/// `early <= late + distance_us`, of columns of left ++ right.
#[derive(Clone, Copy, Debug)]
struct Bound {
    early: usize,
    late: usize,
    distance_us: i64,
}

/// The join of two plans with what its condition says about event time; late rows are dropped where that is needed.
pub(super) fn join(left: StreamPlan, right: StreamPlan, join: Join) -> StreamPlan {
    let Some((interval, times)) = interval(&left, &right, &join) else {
        return left.join(right, join);
    };
    let in_time = |plan: StreamPlan, time: Option<usize>| match time {
        Some(time) => plan.late_filter(CloseColumn::event_time(time)),
        None => plan,
    };
    let (left, right) = (in_time(left, times[0]), in_time(right, times[1]));
    left.join(right, Join { interval: Some(interval), ..join })
}

/// With the columns of each side behind which, for the watermark, no row may come.
fn interval(
    left: &StreamPlan,
    right: &StreamPlan,
    join: &Join,
) -> Option<(Interval, [Option<usize>; 2])> {
    let width = left.schema.fields().len();
    let sides = [left, right];
    let appends = sides.iter().all(|side| side.properties.append_only);
    let has_time = sides.iter().all(|side| !side.properties.watermark_columns.is_empty());
    // Rows of other kinds without further condition are counted by key.
    if !appends || !has_time || join.filter.is_none() && join.kind != JoinKind::Inner {
        return None;
    }
    let place = |column: usize| if column < width { (0, column) } else { (1, column - width) };
    let is_event_time = |(side, column): (usize, usize)| {
        let side: &StreamPlan = sides[side];
        side.properties.watermark_columns.contains(&column)
    };
    let mut forgets: [Option<(CloseColumn, usize)>; 2] = [None; 2];
    for bound in bounds(sides, join) {
        let ((early_side, early), (late_side, late)) = (place(bound.early), place(bound.late));
        if early_side == late_side || !is_event_time((early_side, early)) {
            continue;
        }
        let after_us = bound.distance_us.saturating_add(1);
        let closes = CloseColumn { column: late, after_us };
        let best = forgets[late_side].is_none_or(|(known, _)| {
            known.column == late && after_us < known.after_us
                || !is_event_time((late_side, known.column)) && is_event_time((late_side, late))
        });
        if best {
            forgets[late_side] = Some((closes, early));
        }
    }
    let behind_us = [0, 1].map(|side: usize| {
        let (closes, _) = forgets[side].filter(|(c, _)| is_event_time((side, c.column)))?;
        Some(closes.after_us - 1)
    });
    let counted = [
        !matches!(join.kind, JoinKind::Inner | JoinKind::Right),
        matches!(join.kind, JoinKind::Right | JoinKind::Full),
    ];
    let kept = [0, 1].map(|side: usize| match counted[1 - side] {
        true => with_partners(forgets[side], forgets[1 - side]),
        false => forgets[side],
    });
    if kept == [None, None] {
        return None;
    }
    let times = [1, 0].map(|of: usize| kept[of].map(|(_, early)| early));
    let interval = Interval { forgets: kept.map(|kept| Some(kept?.0)), behind_us };
    Some((interval, times))
}

/// A row whose partners count their matches goes with the last of them: else one that is counted anew would have too few.
fn with_partners(
    own: Option<(CloseColumn, usize)>,
    partners: Option<(CloseColumn, usize)>,
) -> Option<(CloseColumn, usize)> {
    let ((own, early), (partner, _)) = (own?, partners?);
    // Its partners' time is at most `own.after_us - 1` after its own; they go `partner.after_us` after theirs.
    let last = own.after_us.saturating_add(partner.after_us).saturating_sub(1);
    let after_us = own.after_us.max(last);
    (partner.column == early).then_some((CloseColumn { after_us, ..own }, early))
}

/// What the keys and the condition say.
fn bounds(sides: [&StreamPlan; 2], join: &Join) -> Vec<Bound> {
    let width = sides[0].schema.fields().len();
    let is_time = |column: usize| {
        let (side, column) = if column < width { (0, column) } else { (1, column - width) };
        matches!(
            sides[side].schema.field(column).data_type(),
            DataType::Timestamp(TimeUnit::Microsecond, _)
        )
    };
    let mut bounds = Vec::new();
    let keys = join.left_keys.iter().zip(&join.right_keys).filter(|_| !join.null_equals_null);
    for (&left, &right) in keys.filter(|&(&left, &right)| is_time(left) && is_time(width + right)) {
        for (early, late) in [(left, width + right), (width + right, left)] {
            bounds.push(Bound { early, late, distance_us: 0 });
        }
    }
    for part in join.filter.iter().flat_map(split_conjunction) {
        let Some(comparison) = part.downcast_ref::<BinaryExpr>() else { continue };
        let moved = [comparison.left(), comparison.right()].map(|side| moved(side, &is_time));
        let [Some(left), Some(right)] = moved else { continue };
        let is_early = |early: Moved, late: Moved, strictly: bool| Bound {
            early: early.column,
            late: late.column,
            distance_us: late.by[1].saturating_sub(early.by[0]).saturating_sub(strictly.into()),
        };
        match comparison.op() {
            Operator::Lt => bounds.push(is_early(left, right, true)),
            Operator::LtEq => bounds.push(is_early(left, right, false)),
            Operator::Gt => bounds.push(is_early(right, left, true)),
            Operator::GtEq => bounds.push(is_early(right, left, false)),
            Operator::Eq => {
                bounds.extend([is_early(left, right, false), is_early(right, left, false)]);
            }
            _ => {}
        }
    }
    bounds
}

/// A time column, or one with a constant interval added or taken off.
fn moved(expr: &plan::Expr, is_time: &dyn Fn(usize) -> bool) -> Option<Moved> {
    if let Some(column) = column_of(expr) {
        return is_time(column).then_some(Moved { column, by: [0, 0] });
    }
    let sum = expr.downcast_ref::<BinaryExpr>()?;
    let (time, by) = match (moved(sum.left(), is_time), moved(sum.right(), is_time), sum.op()) {
        (Some(time), None, Operator::Plus) => (time, distance_us(sum.right())?),
        (None, Some(time), Operator::Plus) => (time, distance_us(sum.left())?),
        (Some(time), None, Operator::Minus) => {
            let [least, most] = distance_us(sum.right())?;
            (time, [-most, -least])
        }
        _ => return None,
    };
    let by = [time.by[0].checked_add(by[0])?, time.by[1].checked_add(by[1])?];
    Some(Moved { by, ..time })
}

/// How long an interval is: at least, at most.
fn distance_us(expr: &plan::Expr) -> Option<[i64; 2]> {
    let literal = expr.downcast_ref::<Literal>()?.value();
    let whole = literal.cast_to(&DataType::Interval(IntervalUnit::MonthDayNano)).ok()?;
    let ScalarValue::IntervalMonthDayNano(Some(interval)) = whole else { return None };
    let mut months = MONTH_US.map(|month| i64::from(interval.months).saturating_mul(month));
    months.sort_unstable();
    let days = i64::from(interval.days).saturating_mul(DAY_US);
    // What is less than a microsecond is cut off, or not.
    let rest = [
        interval.nanoseconds.div_euclid(1000),
        interval.nanoseconds.div_euclid(1000) + i64::from(interval.nanoseconds % 1000 != 0),
    ];
    let sum = |place: usize| months[place].checked_add(days)?.checked_add(rest[place]);
    Some([sum(0)?, sum(1)?])
}
