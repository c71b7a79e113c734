//! SET, RESET and DISCARD.

use datafusion::sql::sqlparser::ast::{DiscardObject, Expr, Set, Value};

use super::{command, transaction};
use crate::error::{Result, SqlError};
use crate::outcome::{Notice, Outcome};
use crate::parser::SetVariable;
use crate::session::Session;
use crate::settings::SetEffect;

/// SET [LOCAL] name = value.
pub(super) fn set(session: &mut Session, set: &SetVariable) -> Result<Outcome> {
    let before = session.settings.get(&set.name);
    let effect = session.settings.set(&set.name, set.value.as_deref())?;
    if set.local {
        if session.transaction.is_open() {
            session.transaction.note_local(&set.name, before);
        } else {
            session.settings.set(&set.name, before.as_deref())?;
            notice(session, "WARNING", "SET LOCAL can only be used in transaction blocks", "25P01");
        }
    }
    if effect == SetEffect::Ignored {
        let text = format!("setting \"{}\" has no effect here", set.name);
        notice(session, "NOTICE", &text, "00000");
    }
    Ok(command("SET"))
}

fn notice(session: &mut Session, severity: &'static str, message: &str, sqlstate: &'static str) {
    let message = message.to_string();
    session.notice(Notice { severity, sqlstate, message, hint: None });
}

/// SET TRANSACTION, SET ROLE and other forms.
pub(super) fn set_other(session: &mut Session, set: &Set) -> Result<Outcome> {
    match set {
        Set::SetTransaction { modes, snapshot: None, session: false } => {
            if !session.transaction.is_open() {
                let text = "SET TRANSACTION can only be used in transaction blocks";
                notice(session, "WARNING", text, "25P01");
            }
            transaction::set_modes(session, modes);
            Ok(command("SET"))
        }
        Set::SetTransaction { session: true, .. } => Ok(command("SET")),
        Set::SetTimeZone { local, value } => {
            let value = match value {
                Expr::Value(value) => match &value.value {
                    Value::SingleQuotedString(text) => text.clone(),
                    other => other.to_string(),
                },
                other => other.to_string(),
            };
            let name = "timezone".to_string();
            self::set(session, &SetVariable { local: *local, name, value: Some(value) })
        }
        other => Err(SqlError::unsupported(other.to_string())),
    }
}

/// RESET name or RESET ALL.
pub(super) fn reset(session: &mut Session, name: Option<&str>) -> Result<Outcome> {
    match name {
        None => session.settings.reset_all(),
        Some(name) => {
            session.settings.set(name, None)?;
        }
    }
    Ok(command("RESET"))
}

/// DISCARD ALL and its parts.
pub(super) fn discard(session: &mut Session, what: &DiscardObject) -> Result<Outcome> {
    let tag = format!("DISCARD {what}").to_uppercase();
    if *what == DiscardObject::ALL {
        session.end_implicit()?;
        if session.transaction.is_open() {
            let text = "DISCARD ALL cannot run inside a transaction block";
            return Err(SqlError::new("25001", text));
        }
        session.settings.reset_all();
        session.cursors.clear();
        session.prepared.clear();
    }
    Ok(command(tag))
}
