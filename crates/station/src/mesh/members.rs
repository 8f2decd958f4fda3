//! The members of a mesh: stations that may use the engine of this station, with their invitations
//! and names.
//!
//! The file `members` of the state directory holds no token, only its SHA-256 (FIPS 180-4). A token
//! has 256 random bits, so the digest of the token reveals nothing. Tokens are looked up by digest,
//! so the time of a lookup does not show how many bytes of a guessed token are right.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use barograph_engine::wire;
use barograph_forecast::Name;
use ring::digest;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::limits::member_quota::MemberQuota;
use crate::state::{self, StateFiles};
use crate::sync::lock;

/// All invitations of this station: invitations that a member uses, and open invitations.
pub(crate) struct Members {
    files: StateFiles,
    /// Name of this station, which no member may have.
    host: Name,
    list: Mutex<HashMap<Digest, Arc<Member>>>,
    /// Locked while a change is written. Lookups of tokens do not use this lock, so lookups do not
    /// wait for the disk.
    turn: Mutex<()>,
}

pub(crate) struct Member {
    digest: Digest,
    created_s: u64,
    name: Mutex<Option<Name>>,
    /// Whether a station has used the invitation, to append records or to register.
    is_used: AtomicBool,
    /// Whether a registration was ever accepted.
    has_registered: AtomicBool,
    /// Groups of the newest registration; `None` = the member never registered, or an older version
    /// did not store the groups.
    groups: Mutex<Option<Vec<Name>>>,
    removed: watch::Sender<bool>,
    /// Limits of the member: rates, and number of concurrent requests.
    pub(crate) quota: MemberQuota,
}

/// Public properties of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemberInfo {
    /// `None` = an open invitation for any name.
    pub(crate) name: Option<Name>,
    /// Identifies an open invitation that has no name.
    pub(crate) id: String,
    pub(crate) created_s: u64,
}

/// Why a change of the members was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MembersError {
    #[error("`{0}` is the name of this station itself")]
    Own(Name),
    #[error(
        "`{0}` is already a member; to replace its invitation, run `barograph members --remove {0}` first"
    )]
    Taken(Name),
    #[error("this token belongs to `{bound}`, not to `{asked}`; create an invitation for `{asked}`")]
    Bound { bound: Name, asked: Name },
    #[error("the invitation was withdrawn")]
    Removed,
    #[error("`{0}` is not a member; run `barograph members` for a list")]
    Unknown(String),
    #[error("there are {MEMBERS_MAX} members already; remove one with `barograph members --remove NAME`")]
    TooMany,
    #[error("{path}: {error}", path = path.display())]
    Store { path: PathBuf, error: std::io::Error },
}

type Digest = [u8; 32];

#[derive(Serialize, Deserialize)]
struct FileJson {
    members: Vec<MemberJson>,
}

#[derive(Serialize, Deserialize)]
struct MemberJson {
    name: Option<String>,
    token_sha256: String,
    created_s: u64,
    /// Absent in files of older versions.
    #[serde(default = "yes")]
    has_registered: bool,
    /// Absent in files of older versions; `has_registered` is then used instead.
    is_used: Option<bool>,
    /// Absent in files of older versions.
    groups: Option<Vec<String>>,
}

fn yes() -> bool {
    true
}

impl Members {
    /// Reads the members of the station `host`.
    ///
    /// # Errors
    /// The file cannot be read or is damaged. A damaged file is not replaced.
    pub(crate) fn open(files: StateFiles, host: Name) -> std::io::Result<Self> {
        let list = match std::fs::read_to_string(files.directory().join(FILE)) {
            Ok(text) => {
                read(&text).map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))?
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => HashMap::new(),
            Err(error) => return Err(error),
        };
        Ok(Self { files, host, list: Mutex::new(list), turn: Mutex::new(()) })
    }

    /// Invites a station: only the station `name`, or any station if `name` is `None`. Returns the
    /// token, of which only the digest is stored. Blocks for the disk.
    pub(crate) fn invite(&self, name: Option<Name>, now_s: u64) -> Result<String, MembersError> {
        let token = state::random_token().map_err(|error| self.not_stored(error))?;
        let _turn = lock(&self.turn);
        let mut list = lock(&self.list).clone();
        if list.len() >= MEMBERS_MAX {
            return Err(MembersError::TooMany);
        }
        if let Some(name) = &name {
            self.is_free(&list, name)?;
        }
        let member = Arc::new(Member::new(digest_of(&token), now_s, name));
        list.insert(member.digest, Arc::clone(&member));
        self.store(&list)?;
        lock(&self.list).insert(member.digest, member);
        Ok(token)
    }

    /// The member with this token.
    pub(crate) fn of_token(&self, token: &str) -> Option<Arc<Member>> {
        lock(&self.list).get(&digest_of(token)).cloned()
    }

    /// Binds a member to a name, or confirms that it has this name. Blocks for the disk.
    ///
    /// # Errors
    /// [`MembersError`]; the member is then bound as before.
    pub(crate) fn bind(&self, member: &Member, name: &Name) -> Result<(), MembersError> {
        let _turn = lock(&self.turn);
        let list = lock(&self.list).clone();
        if member.is_removed() {
            return Err(MembersError::Removed);
        }
        let bound = member.name();
        match &bound {
            Some(bound) if bound != name => {
                return Err(MembersError::Bound { bound: bound.clone(), asked: name.clone() });
            }
            Some(_) if member.is_used() => return Ok(()),
            Some(_) => {}
            None => self.is_free(&list, name)?,
        }
        *lock(&member.name) = Some(name.clone());
        let stored = self.store_with(&list, &member.is_used);
        if stored.is_err() {
            *lock(&member.name) = bound;
        }
        stored
    }

    /// Records that a registration of the member in these groups was accepted, so that room for its
    /// series is reserved. Blocks for the disk.
    ///
    /// # Errors
    /// [`MembersError`]. The next registration of the member is then checked for room again.
    pub(crate) fn registered(&self, member: &Member, groups: &[Name]) -> Result<(), MembersError> {
        let _turn = lock(&self.turn);
        if member.is_removed() {
            return Ok(());
        }
        let list = lock(&self.list).clone();
        let had_registered = member.has_registered.swap(true, Ordering::Relaxed);
        let before = lock(&member.groups).replace(groups.to_vec());
        self.store(&list).inspect_err(|_| {
            member.has_registered.store(had_registered, Ordering::Relaxed);
            *lock(&member.groups) = before;
        })
    }

    /// Groups of each member with a name and known groups.
    pub(crate) fn groups(&self) -> HashMap<Name, Vec<Name>> {
        let list = lock(&self.list);
        list.values().filter_map(|member| Some((member.name()?, member.groups()?))).collect()
    }

    /// All members: first the members with a name, ordered by name, then the open invitations,
    /// oldest first.
    pub(crate) fn all(&self) -> Vec<MemberInfo> {
        let mut all: Vec<MemberInfo> = lock(&self.list).values().map(|member| member.info()).collect();
        all.sort_by_cached_key(|info| {
            (info.name.is_none(), info.name.clone(), info.created_s, info.id.clone())
        });
        all
    }

    /// Number of members, including open invitations.
    pub(crate) fn len(&self) -> usize {
        lock(&self.list).len()
    }

    /// Withdraws an invitation. The argument is the name of the member, or the id of an open
    /// invitation. Takes effect at once, even if the file cannot be written yet. Blocks for the
    /// disk.
    ///
    /// # Errors
    /// [`MembersError::Unknown`] if no invitation has this name or id.
    pub(crate) fn remove(&self, name_or_id: &str) -> Result<Arc<Member>, MembersError> {
        let _turn = lock(&self.turn);
        let mut list = lock(&self.list).clone();
        let digest = list.values().find(|member| member.is_called(name_or_id)).map(|member| member.digest);
        let member = digest.and_then(|digest| list.remove(&digest));
        let member = member.ok_or_else(|| MembersError::Unknown(name_or_id.into()))?;
        lock(&self.list).remove(&member.digest);
        member.removed.send_replace(true);
        // A failed write is retried later, so a member can be removed even if that member has
        // filled the disk.
        self.files.write(FILE, text(&list).into_bytes(), STILL_INVITED);
        Ok(member)
    }

    /// Whether a member uses this name.
    pub(crate) fn has(&self, name: &Name) -> bool {
        lock(&self.list).values().any(|member| member.is_used() && member.name().as_ref() == Some(name))
    }

    /// The names of all stations that are members.
    pub(crate) fn names(&self) -> BTreeSet<Name> {
        names(&lock(&self.list))
    }

    /// Checks that no member and no invitation has the name.
    ///
    /// # Errors
    /// [`MembersError::Own`], [`MembersError::Taken`]
    pub(crate) fn check_free(&self, name: &Name) -> Result<(), MembersError> {
        self.is_free(&lock(&self.list), name)
    }

    fn is_free(&self, list: &HashMap<Digest, Arc<Member>>, name: &Name) -> Result<(), MembersError> {
        if *name == self.host {
            return Err(MembersError::Own(name.clone()));
        }
        // A name that equals the id of an open invitation is not free. Otherwise a removal by this
        // name could remove the invitation instead of the member.
        if list.values().any(|member| member.is_called(name.as_str())) {
            return Err(MembersError::Taken(name.clone()));
        }
        Ok(())
    }

    /// Sets the flag `mark` of a member and stores all members. Resets the flag if the members
    /// cannot be stored.
    fn store_with(&self, list: &HashMap<Digest, Arc<Member>>, mark: &AtomicBool) -> Result<(), MembersError> {
        mark.store(true, Ordering::Relaxed);
        self.store(list).inspect_err(|_| mark.store(false, Ordering::Relaxed))
    }

    fn store(&self, list: &HashMap<Digest, Arc<Member>>) -> Result<(), MembersError> {
        self.files.write_now(FILE, text(list).as_bytes()).map_err(|error| self.not_stored(error))
    }

    fn not_stored(&self, error: std::io::Error) -> MembersError {
        MembersError::Store { path: self.files.directory().join(FILE), error }
    }
}

/// Text of the members' file.
fn text(list: &HashMap<Digest, Arc<Member>>) -> String {
    let mut members: Vec<MemberJson> = list.values().map(|member| member.json()).collect();
    members.sort_by(|a, b| (a.created_s, &a.token_sha256).cmp(&(b.created_s, &b.token_sha256)));
    let text = serde_json::to_string_pretty(&FileJson { members }).expect("texts and numbers are JSON");
    text + "\n"
}

impl Member {
    fn new(digest: Digest, created_s: u64, name: Option<Name>) -> Self {
        let (removed, _) = watch::channel(false);
        Self {
            digest,
            created_s,
            name: Mutex::new(name),
            is_used: AtomicBool::new(false),
            has_registered: AtomicBool::new(false),
            groups: Mutex::new(None),
            removed,
            quota: MemberQuota::new(),
        }
    }

    /// Whether the member has this name, or is an open invitation with this id.
    fn is_called(&self, name_or_id: &str) -> bool {
        match self.name() {
            Some(name) => name.as_str() == name_or_id,
            None => self.info().id == name_or_id,
        }
    }

    /// Whether a station has ever used the invitation.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// Whether a registration of the member was ever accepted.
    pub(crate) fn has_registered(&self) -> bool {
        self.has_registered.load(Ordering::Relaxed)
    }

    /// Groups of the member's newest registration; `None` = there was no registration, or its
    /// groups are not known.
    pub(crate) fn groups(&self) -> Option<Vec<Name>> {
        lock(&self.groups).clone()
    }

    /// Name that the member is bound to.
    pub(crate) fn name(&self) -> Option<Name> {
        lock(&self.name).clone()
    }

    /// Receiver of a value that becomes true when the invitation is withdrawn.
    pub(crate) fn removal(&self) -> watch::Receiver<bool> {
        self.removed.subscribe()
    }

    pub(crate) fn is_removed(&self) -> bool {
        *self.removed.borrow()
    }

    pub(crate) fn info(&self) -> MemberInfo {
        let id = wire::hex(&self.digest[..ID_BYTES]);
        MemberInfo { name: self.name(), id, created_s: self.created_s }
    }

    fn json(&self) -> MemberJson {
        let name = self.name().map(|name| name.to_string());
        let (token_sha256, created_s) = (wire::hex(&self.digest), self.created_s);
        let (has_registered, is_used) = (self.has_registered(), Some(self.is_used()));
        let groups = self.groups().map(|groups| groups.iter().map(Name::to_string).collect());
        MemberJson { name, token_sha256, created_s, has_registered, is_used, groups }
    }
}

/// Names of the stations that are members in the file of an earlier run; empty if there is no file.
/// [`Members::open`] reports a damaged file.
pub(crate) fn names_known(state: &Path) -> BTreeSet<Name> {
    let text = std::fs::read_to_string(state.join(FILE)).unwrap_or_default();
    names(&read(&text).unwrap_or_default())
}

fn names(list: &HashMap<Digest, Arc<Member>>) -> BTreeSet<Name> {
    list.values().filter(|member| member.is_used()).filter_map(|member| member.name()).collect()
}

/// Members in the text of a file.
fn read(text: &str) -> Result<HashMap<Digest, Arc<Member>>, String> {
    let file: FileJson = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut list = HashMap::new();
    let mut names = std::collections::HashSet::new();
    for json in file.members {
        let digest = wire::from_hex(&json.token_sha256).ok_or("token_sha256 has 64 hexadecimal digits")?;
        let name = json.name.as_deref().map(Name::new).transpose().map_err(|error| error.to_string())?;
        if let Some(name) = &name
            && !names.insert(name.clone())
        {
            return Err(format!("`{name}` is listed twice"));
        }
        let groups = json.groups.map(|groups| groups.iter().map(|group| Name::new(group)).collect());
        let groups: Option<Result<Vec<Name>, _>> = groups;
        let member = Member::new(digest, json.created_s, name);
        *lock(&member.groups) = groups.transpose().map_err(|error| error.to_string())?;
        member.has_registered.store(json.has_registered, Ordering::Relaxed);
        member.is_used.store(json.is_used.unwrap_or(json.has_registered), Ordering::Relaxed);
        list.insert(digest, Arc::new(member));
    }
    Ok(list)
}

fn digest_of(token: &str) -> Digest {
    let digest = digest::digest(&digest::SHA256, token.as_bytes());
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Text for `/healthz`: the consequence if the file could not be written after a withdrawal.
const STILL_INVITED: &str = "after a restart, removed members can join again";
/// The file's name in the state directory.
pub(crate) const FILE: &str = "members";

/// Maximum number of members, including open invitations. Each member may have a registration,
/// streams and series. More members would overload one station.
pub(crate) const MEMBERS_MAX: usize = 1000;

/// Number of bytes of an id, enough to distinguish a thousand invitations.
const ID_BYTES: usize = 6;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn open(directory: &Path) -> Members {
        Members::open(StateFiles::new(directory), name("here")).unwrap()
    }

    #[test]
    fn a_token_is_stored_only_as_a_digest_and_survives_a_restart() {
        let state = tempfile::tempdir().unwrap();
        let members = open(state.path());
        let token = members.invite(None, 7).unwrap();
        let member = members.of_token(&token).unwrap();
        members.bind(&member, &name("b")).unwrap();
        let path = state.path().join(FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!std::fs::read_to_string(&path).unwrap().contains(&token));
        let again = open(state.path());
        assert_eq!(again.of_token(&token).unwrap().name(), Some(name("b")));
        assert!(again.of_token(&token[1..]).is_none() && again.of_token("").is_none());
        assert_eq!(again.all(), members.all());
    }

    #[test]
    fn a_token_belongs_to_its_first_name_and_a_name_to_one_token() {
        let state = tempfile::tempdir().unwrap();
        let members = open(state.path());
        let [first, second] =
            [0, 1].map(|now| members.of_token(&members.invite(None, now).unwrap()).unwrap());
        assert!(matches!(members.bind(&first, &name("here")), Err(MembersError::Own(_))));
        members.bind(&first, &name("b")).unwrap();
        members.bind(&first, &name("b")).unwrap();
        assert!(matches!(members.bind(&first, &name("c")), Err(MembersError::Bound { .. })));
        assert!(matches!(members.bind(&second, &name("b")), Err(MembersError::Taken(_))));
        assert_eq!(second.name(), None, "it is still free");
        assert!(matches!(members.invite(Some(name("b")), 2), Err(MembersError::Taken(_))));
        assert!(matches!(members.invite(Some(name("here")), 2), Err(MembersError::Own(_))));
        let open_id = second.info().id;
        let third = members.of_token(&members.invite(None, 2).unwrap()).unwrap();
        assert!(matches!(members.bind(&third, &name(&open_id)), Err(MembersError::Taken(_))));
        members.remove(&third.info().id).unwrap();
        members.remove(&open_id).unwrap();
        members.remove("b").unwrap();
        assert!(matches!(members.bind(&first, &name("b")), Err(MembersError::Removed)));
        assert_eq!(members.all(), []);
        assert!(matches!(members.remove("b"), Err(MembersError::Unknown(_))));
        assert_eq!(open(state.path()).all(), []);
    }

    #[test]
    fn changes_that_cannot_be_stored_fail_except_a_withdrawal() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join("gone");
        std::fs::create_dir(&folder).unwrap();
        let members = open(&folder);
        let token = members.invite(None, 0).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let member = members.of_token(&token).unwrap();
        assert!(matches!(members.bind(&member, &name("b")), Err(MembersError::Store { .. })));
        assert_eq!(member.name(), None);
        assert!(matches!(members.invite(None, 0), Err(MembersError::Store { .. })));
        members.remove(&member.info().id).unwrap();
        assert!(members.of_token(&token).is_none() && member.is_removed());
        assert!(members.files.reasons()[0].ends_with(STILL_INVITED));
        std::fs::create_dir(&folder).unwrap();
        members.files.retry();
        assert_eq!((open(&folder).all(), members.files.reasons()), (Vec::new(), Vec::new()));
    }

    #[test]
    fn the_groups_of_a_member_outlive_a_restart_and_are_unknown_in_older_files() {
        let state = tempfile::tempdir().unwrap();
        let older = r#"{"members": [{"name": "a", "token_sha256": "D", "created_s": 1}]}"#;
        std::fs::write(state.path().join(FILE), older.replace('D', &"1".repeat(64))).unwrap();
        let members = open(state.path());
        assert!(members.groups().is_empty());
        let member = members.of_token(&members.invite(Some(name("b")), 2).unwrap()).unwrap();
        members.bind(&member, &name("b")).unwrap();
        members.registered(&member, &[name("x"), name("y")]).unwrap();
        members.registered(&member, &[name("y")]).unwrap();
        let groups = HashMap::from([(name("b"), vec![name("y")])]);
        assert_eq!((members.groups(), open(state.path()).groups()), (groups.clone(), groups));
    }

    #[test]
    fn a_damaged_file_is_an_error_and_stays() {
        let state = tempfile::tempdir().unwrap();
        let twice = r#"{"members": [{"name": "a", "token_sha256": "D", "created_s": 1}, {"name": "a", "token_sha256": "E", "created_s": 1}]}"#
            .replace('D', &"1".repeat(64))
            .replace('E', &"2".repeat(64));
        for text in
            ["", "{}", r#"{"members": [{"name": "a b", "token_sha256": "", "created_s": 1}]}"#, &twice]
        {
            std::fs::write(state.path().join(FILE), text).unwrap();
            assert!(Members::open(StateFiles::new(state.path()), name("here")).is_err(), "{text}");
            assert_eq!(std::fs::read_to_string(state.path().join(FILE)).unwrap(), text);
        }
    }
}
