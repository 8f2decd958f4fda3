//! `/v1/invitations` and `/v1/members`: stations that may use this one's engine.

use serde::{Deserialize, Serialize};

/// A request for an invitation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewInvitation {
    /// Name of the station; `None` = the first name that uses the invitation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// An invitation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Invitation {
    /// Secret that the new member shows.
    pub token: String,
    /// Withdraws the invitation while it is open and names no station.
    pub id: String,
    /// Name of the station that it is for.
    pub name: Option<String>,
    /// Name of the inviting station.
    pub host: String,
    /// Address on which it listens.
    pub address: String,
    /// Addresses at which others reach it.
    pub addresses: Vec<String>,
}

/// All members and open invitations.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberList {
    pub members: Vec<Member>,
}

/// A member, or an open invitation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Member {
    /// Name; `None` = an open invitation for any name.
    pub name: Option<String>,
    /// Names the invitation.
    pub id: String,
    /// When it was invited, seconds since 1970-01-01 UTC.
    pub created_s: u64,
    /// Whether it is in the directory now.
    pub registered: bool,
}
