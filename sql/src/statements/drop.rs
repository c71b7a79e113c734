//! DROP TABLE, SOURCE, VIEW, MATERIALIZED VIEW and SINK, with their dependents.

use std::sync::Arc;

use millstream_engine::plan::RelationId;

use super::command;
use crate::catalog::{Catalog, Relation};
use crate::error::{Result, SqlError, TextMap};
use crate::outcome::{Notice, Outcome};
use crate::parser::{DropRelation, RelationKind, fold_name, name_location};
use crate::session::{Run, Session};

pub(super) async fn run(
    session: &mut Session,
    drop: &DropRelation,
    run: &Run<'_>,
) -> Result<Outcome> {
    let tag = format!("DROP {}", drop.kind.keyword());
    session.check_outside_changes(&tag)?;
    let db = Arc::clone(&session.db);
    let guard = db.define().await;
    let catalog = db.catalog();
    let named = find_all(session, &catalog, drop, run)?;
    let ids: Vec<RelationId> = named.iter().map(|relation| relation.id).collect();
    let above = catalog.dependents(&ids);
    if !above.is_empty() && !drop.cascade {
        return Err(still_needed(&catalog, &named, &above));
    }
    tell_cascade(session, &above);
    let mut order: Vec<Arc<Relation>> = above.into_iter().chain(named).collect();
    newest_first(&mut order);
    if order.iter().any(|relation| relation.kind() == RelationKind::Sink) {
        // What the sink has been given becomes visible before it goes.
        db.engine().checkpoint().await?;
    }
    db.remove(&guard, order).await?;
    Ok(command(tag))
}

fn find_all(
    session: &mut Session,
    catalog: &Catalog,
    drop: &DropRelation,
    run: &Run<'_>,
) -> Result<Vec<Arc<Relation>>> {
    let path = session.settings.search_path();
    let mut found: Vec<Arc<Relation>> = Vec::new();
    for name in &drop.names {
        let parts = fold_name(name);
        let Some(relation) = catalog.find(&parts, &path) else {
            let text = format!("{} \"{}\" does not exist", drop.kind.noun(), parts.join("."));
            if !drop.if_exists {
                let place = name_location(name);
                let position =
                    place.and_then(|(line, column)| TextMap::new(run.text).position(line, column));
                let hint = catalog.missing(&parts).hint;
                return Err(SqlError { position, hint, ..SqlError::new("42P01", text) });
            }
            let message = format!("{text}, skipping");
            session.notice(Notice { severity: "NOTICE", sqlstate: "00000", message, hint: None });
            continue;
        };
        if relation.kind() != drop.kind {
            let text = format!("\"{}\" is not a {}", relation.name, drop.kind.noun());
            let hint = format!("Use DROP {} to remove it.", relation.kind().keyword());
            return Err(SqlError::new("42809", text).with_hint(hint));
        }
        if !found.iter().any(|known| known.id == relation.id) {
            found.push(Arc::clone(relation));
        }
    }
    Ok(found)
}

/// 2BP01, with who needs what.
pub(super) fn still_needed(
    catalog: &Catalog,
    named: &[Arc<Relation>],
    above: &[Arc<Relation>],
) -> SqlError {
    let what = match named {
        [only] => format!("cannot drop {} because other objects depend on it", only.title()),
        _ => "cannot drop desired object(s) because other objects depend on them".to_string(),
    };
    let mut lines = Vec::new();
    for relation in above {
        for id in &relation.depends_on {
            let Some(needed) = catalog.by_id(*id) else { continue };
            let concerns = named.iter().chain(above).any(|known| known.id == needed.id);
            if concerns {
                lines.push(format!("{} depends on {}", relation.title(), needed.title()));
            }
        }
    }
    SqlError::new("2BP01", what)
        .with_detail(lines.join("\n"))
        .with_hint("Use DROP ... CASCADE to drop the dependent objects too.")
}

/// The notice of a CASCADE.
pub(super) fn tell_cascade(session: &mut Session, above: &[Arc<Relation>]) {
    let message = match above {
        [] => return,
        [only] => format!("drop cascades to {}", only.title()),
        many => format!("drop cascades to {} other objects", many.len()),
    };
    session.notice(Notice { severity: "NOTICE", sqlstate: "00000", message, hint: None });
}

/// An order in which dependents go first: a relation reads only older ones (a replaced view may not, but is only text).
pub(super) fn newest_first(relations: &mut [Arc<Relation>]) {
    relations.sort_by_key(|relation| std::cmp::Reverse(relation.id));
}
