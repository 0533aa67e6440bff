//! What a person approved for the rest of a session.

use serde::{Deserialize, Serialize};

use crate::payload::{ApprovalAsked, ApprovalDecided, ApprovalGranted, Decision};

/// A grant: what is not asked for any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionGrant {
    /// Identifies it: the id of `approval/granted`, or of the question whose answer it was.
    pub id: String,
    /// Event that granted it.
    pub seq: u64,
    /// When, unix milliseconds.
    pub time: u64,
    /// Who granted it.
    pub by: String,
    /// What it covers.
    #[serde(flatten)]
    pub covers: Covers,
}

/// What a grant covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Covers {
    /// Commands of the shell that begin with these words.
    Commands {
        /// The words.
        prefix: Vec<String>,
    },
    /// Calls like one that was asked about.
    Call {
        /// The tool.
        name: String,
        /// The call's arguments as JSON text.
        arguments: String,
    },
}

/// The grants in force, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Grants(Vec<SessionGrant>);

impl Grants {
    pub(crate) fn all(&self) -> &[SessionGrant] {
        &self.0
    }

    /// Notes a grant. One whose id is in force already is no other.
    fn add(&mut self, grant: SessionGrant) {
        if !self.0.iter().any(|known| known.id == grant.id) {
            self.0.push(grant);
        }
    }

    pub(crate) fn granted(&mut self, (seq, time): (u64, u64), granted: ApprovalGranted) {
        let ApprovalGranted {
            grant_id,
            prefix,
            by,
        } = granted;
        self.add(SessionGrant {
            id: grant_id,
            seq,
            time,
            by,
            covers: Covers::Commands { prefix },
        });
    }

    /// An answer for the session is a grant, but never one to leave the sandbox.
    pub(crate) fn decided(
        &mut self,
        (seq, time): (u64, u64),
        asked: ApprovalAsked,
        decided: &ApprovalDecided,
    ) {
        if decided.decision != Decision::ApprovedForSession || asked.outside_sandbox {
            return;
        }
        let covers = match &decided.prefix {
            Some(prefix) => Covers::Commands {
                prefix: prefix.clone(),
            },
            None => Covers::Call {
                name: asked.name,
                arguments: asked.arguments,
            },
        };
        self.add(SessionGrant {
            id: asked.approval_id,
            seq,
            time,
            by: decided.by.clone(),
            covers,
        });
    }

    pub(crate) fn revoked(&mut self, id: &str) {
        self.0.retain(|grant| grant.id != id);
    }

    /// What is let go of here no later move brings back: going to and fro in the history must
    /// never approve anything.
    pub(crate) fn moved_to(&mut self, seq: u64) {
        self.0.retain(|grant| grant.seq <= seq);
    }
}
