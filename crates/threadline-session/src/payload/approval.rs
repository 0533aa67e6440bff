//! Questions to people, their answers, and what is approved beforehand.

use serde::{Deserialize, Serialize};

/// `approval/asked`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalAsked {
    /// Identifies the question.
    pub approval_id: String,
    /// The call it is about.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// The call's arguments.
    pub arguments: String,
    /// Why it is asked.
    pub reason: String,
    /// Words that the answer may approve all commands of the session by that begin with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<Vec<String>>,
    /// Whether the call would run without the sandbox. Such an answer holds for this call alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outside_sandbox: bool,
}

/// An answer to an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Yes, this once.
    Approved,
    /// Yes, and the like for the rest of the session.
    ApprovedForSession,
    /// No.
    Denied,
    /// Nobody answered in time, or the process ended first.
    Expired,
}

/// `approval/decided`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalDecided {
    /// The question.
    pub approval_id: String,
    /// The answer.
    pub decision: Decision,
    /// Who gave it.
    pub by: String,
    /// What the person added, told to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// With `approved_for_session`: commands that begin with these words are approved, instead of
    /// the identical call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<Vec<String>>,
}

/// `approval/granted`: commands that begin with these words are not asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalGranted {
    /// Identifies the grant.
    pub grant_id: String,
    /// The words.
    pub prefix: Vec<String>,
    /// Who granted it.
    pub by: String,
}

/// `approval/revoked`: a grant ends, be it one of `approval/granted` or, under the id of its
/// question, one of `approval/decided`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRevoked {
    /// The grant.
    pub grant_id: String,
    /// Who revoked it.
    pub by: String,
}
