//! `/v1/invitations` and `/v1/members`: the stations that may use this station's engine.

use serde::{Deserialize, Serialize};

/// A request for an invitation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewInvitation {
    /// Name of the station to invite; `None` = any station may use the invitation, once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// An invitation: the token with which one station joins the mesh.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Invitation {
    /// Secret that the new member shows. The station sends the secret only once.
    pub token: String,
    /// ID with which the invitation can be withdrawn before a station uses it.
    pub id: String,
    /// Name of the invited station; `None` = any name.
    pub name: Option<String>,
    /// Name of the inviting station.
    pub host: String,
    /// Address on which the inviting station listens.
    pub address: String,
    /// Addresses at which other hosts reach the inviting station.
    pub addresses: Vec<String>,
}

/// All members, and all invitations that no station has used yet.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberList {
    /// Members, ordered by name; then unused invitations.
    pub members: Vec<Member>,
}

/// A member, or an unused invitation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Member {
    /// Name of the member; `None` = an unused invitation for any name.
    pub name: Option<String>,
    /// ID of the invitation.
    pub id: String,
    /// Time of the invitation, in seconds since 1970-01-01 UTC.
    pub created_s: u64,
    /// Whether the station is in the directory now.
    pub registered: bool,
}
