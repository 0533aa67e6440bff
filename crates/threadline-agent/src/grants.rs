//! Commands that are approved before they are asked for, per session, in the log.

use threadline_session::{
    Covers, Payload, SessionGrant, SessionId, Transcript,
    payload::{ApprovalGranted, ApprovalRevoked},
};
use threadline_store::{AppendOptions, ReadError, SessionWriter};

use crate::{Agents, StartError, agents::Core, limits::MAX_GRANTS, policy::CommandPrefix};

/// Commands to be granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allow {
    /// The words they begin with.
    pub prefix: CommandPrefix,
    /// Who grants them, as the log names it.
    pub by: String,
}

/// Says why a grant was not given or revoked. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum GrantError {
    /// No such grant is in force.
    #[error("session {session_id} has no grant `{grant_id}` in force")]
    NotFound {
        /// The session.
        session_id: SessionId,
        /// The grant.
        grant_id: String,
    },
    /// There are too many.
    #[error("the session has {MAX_GRANTS} grants already; revoke some first")]
    Full,
    /// The session cannot be opened or written.
    #[error(transparent)]
    Start(#[from] StartError),
}

impl GrantError {
    /// Returns the stable code that interfaces show.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "grant_not_found",
            Self::Full => "grants_full",
            Self::Start(error) => error.code(),
        }
    }
}

impl From<threadline_store::AppendError> for GrantError {
    fn from(error: threadline_store::AppendError) -> Self {
        Self::Start(error.into())
    }
}

impl Agents {
    /// Returns what is approved for the rest of a session, oldest first.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn grants(&self, id: &SessionId) -> Result<Vec<SessionGrant>, ReadError> {
        self.store().grants(id).await
    }

    /// Grants commands to a session, durably, from its next call on. What is granted already is
    /// returned as it is. A session without a run is opened for it, which closes an interrupted
    /// turn.
    ///
    /// # Errors
    /// [`GrantError`].
    pub async fn grant(&self, id: &SessionId, allow: Allow) -> Result<SessionGrant, GrantError> {
        let core = self.core(id).await?;
        let _lock = core.grants.lock().await;
        grant(&core.writer, allow).await
    }

    /// Ends a grant, durably, from the session's next call on.
    ///
    /// # Errors
    /// [`GrantError::NotFound`] when it is not in force.
    pub async fn revoke(
        &self,
        id: &SessionId,
        grant_id: &str,
        by: impl Into<String>,
    ) -> Result<(), GrantError> {
        let core = self.core(id).await?;
        let _lock = core.grants.lock().await;
        revoke(&core.writer, grant_id, by).await
    }
}

fn held<'a>(transcript: &'a Transcript, prefix: &CommandPrefix) -> Option<&'a SessionGrant> {
    transcript.session_grants().iter().find(
        |grant| matches!(&grant.covers, Covers::Commands { prefix: words } if words == prefix.words()),
    )
}

fn event(grant_id: String, allow: &Allow) -> Payload {
    Payload::ApprovalGranted(ApprovalGranted {
        grant_id,
        prefix: allow.prefix.words().to_vec(),
        by: allow.by.clone(),
    })
}

fn fresh_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// Grants commands to a session that is open for writing. Nothing else may change its grants
/// meanwhile.
///
/// # Errors
/// [`GrantError`].
pub async fn grant(writer: &SessionWriter, allow: Allow) -> Result<SessionGrant, GrantError> {
    let (known, count) = writer
        .with_transcript(|t| (held(t, &allow.prefix).cloned(), t.session_grants().len()))
        .await;
    if let Some(known) = known {
        return Ok(known);
    }
    if count >= MAX_GRANTS {
        return Err(GrantError::Full);
    }
    let id = fresh_id();
    let payload = event(id.clone(), &allow);
    // "Granted" and "revoked" are promises.
    writer
        .record(vec![payload], AppendOptions::barrier())
        .await?;
    let granted = writer
        .with_transcript(|t| t.session_grants().iter().find(|g| g.id == id).cloned())
        .await;
    granted.ok_or_else(|| {
        StartError::Internal("a grant that was stored is not in force".into()).into()
    })
}

/// Ends a grant of a session that is open for writing. Nothing else may change its grants
/// meanwhile.
///
/// # Errors
/// [`GrantError::NotFound`] when it is not in force.
pub async fn revoke(
    writer: &SessionWriter,
    grant_id: &str,
    by: impl Into<String>,
) -> Result<(), GrantError> {
    let known = writer
        .with_transcript(|t| t.session_grants().iter().any(|grant| grant.id == grant_id))
        .await;
    if !known {
        return Err(GrantError::NotFound {
            session_id: writer.id().clone(),
            grant_id: grant_id.to_owned(),
        });
    }
    let revoked = Payload::ApprovalRevoked(ApprovalRevoked {
        grant_id: grant_id.to_owned(),
        by: by.into(),
    });
    writer
        .record(vec![revoked], AppendOptions::barrier())
        .await?;
    Ok(())
}

impl Core {
    /// Returns the grants that a turn begins with: those it names, and in a new session those that
    /// are set up for all.
    pub(crate) fn granted(
        &self,
        transcript: &Transcript,
        allow: &[Allow],
    ) -> Result<Vec<Payload>, StartError> {
        let standing: &[Allow] = match transcript.last_turn() {
            0 if !self.is_child() => &self.shared.config.defaults.allow,
            _ => &[],
        };
        let mut new: Vec<&Allow> = Vec::new();
        for allow in standing.iter().chain(allow) {
            let known = new.iter().any(|known| known.prefix == allow.prefix);
            if !known && held(transcript, &allow.prefix).is_none() {
                new.push(allow);
            }
        }
        if transcript.session_grants().len() + new.len() > MAX_GRANTS {
            return Err(StartError::TooManyGrants);
        }
        Ok(new
            .into_iter()
            .map(|allow| event(fresh_id(), allow))
            .collect())
    }

    /// Whether the session is a subagent's, to which nothing is granted but by answers.
    fn is_child(&self) -> bool {
        let origin = &self.writer.header().origin;
        matches!(origin, threadline_session::Origin::Subagent { .. })
    }
}
