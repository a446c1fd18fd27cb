//! The connector's database: tenants, and which instance owns authors, scopes, chats and files.

use std::collections::HashSet;

use petasos_core::{Secret, TenantId};
use petasos_relay::session::{Carries, Entry};
use petasos_store::connector::{Arrival, InstanceChat, Media, Permission};
use petasos_store::{Error, Result, Store, Tx};
use tempfile::TempDir;

use crate::fixture::{NOW, later, link, telegram};

type Assign = fn(&Tx<'_>) -> Result<()>;

/// Database with the instances `a1` and `a2` of one tenant, and `b1` of another.
struct Connector {
    store: Store,
    _folder: TempDir,
}

impl Connector {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_connector(folder.path().join("connector.db")).unwrap();
        let mut connector = Self { store, _folder: folder };
        connector.write(|tx| {
            for (tenant, instances) in [("a", &["a1", "a2"][..]), ("b", &["b1"])] {
                let tenant = tenant.into();
                tx.add_tenant(&tenant, NOW)?;
                instances.iter().try_for_each(|&name| tx.ensure_instance(&name.into(), &tenant, NOW))?;
            }
            Ok(())
        });
        connector
    }

    fn write<T>(&mut self, job: impl FnOnce(&Tx<'_>) -> Result<T>) -> T {
        self.store.write(job).unwrap()
    }

    fn direct(&self) -> Option<String> {
        self.store.instance_of_direct(telegram(), "u").unwrap().map(|id| id.0)
    }

    fn scope(&self) -> Option<String> {
        self.store.instance_of_scope(telegram(), "s").unwrap().map(|id| id.0)
    }
}

#[test]
fn tenant_is_added_once() {
    let mut it = Connector::new();
    assert!(it.write(|tx| tx.add_tenant(&"c".into(), NOW)));
    assert!(!it.write(|tx| tx.add_tenant(&"c".into(), NOW)));
    assert_eq!(it.store.tenants().unwrap(), ["a", "b", "c"].map(TenantId::from));
}

#[test]
fn direct_messages_go_to_an_instance_of_the_same_tenant() {
    let mut it = Connector::new();
    assert_eq!(it.direct(), None);
    assert!(
        !it.write(|tx| tx.assign_direct_messages(telegram(), "u", &"a1".into())),
        "the author is unknown"
    );
    it.write(|tx| tx.bind_author(telegram(), "u", &"a1".into()));
    assert_eq!(it.direct().as_deref(), Some("a1"));
    for (instance, taken) in [("a2", true), ("b1", false)] {
        assert_eq!(
            it.write(|tx| tx.assign_direct_messages(telegram(), "u", &instance.into())),
            taken,
            "{instance}"
        );
        assert_eq!(it.direct().as_deref(), Some("a2"), "{instance}");
    }
    assert_eq!(it.store.instance_of_author(telegram(), "u").unwrap(), Some("a1".into()));
    for bound in [true, false] {
        assert_eq!(it.write(|tx| tx.unbind_author(telegram(), "u")), bound);
        assert_eq!(it.direct(), None);
    }
}

#[test]
fn scope_stays_with_its_instance_until_released_or_assigned() {
    let mut it = Connector::new();
    it.write(|tx| tx.grant_scope(telegram(), "s", &"a1".into()));
    it.write(|tx| tx.grant_scope(telegram(), "s", &"a1".into()));
    let refused = it.store.write(|tx| tx.grant_scope(telegram(), "s", &"b1".into()));
    assert_eq!(refused, Err(Error::Conflict("the scope belongs to another instance")));
    assert!(!it.write(|tx| tx.release_scope(telegram(), "s", &"b1".into())));
    assert_eq!(it.scope().as_deref(), Some("a1"));
    for holder in ["b1", "b1", "a2"] {
        it.write(|tx| tx.assign_scope(telegram(), "s", &holder.into()));
        assert_eq!(it.scope().as_deref(), Some(holder));
    }
    for held in [true, false] {
        assert_eq!(it.write(|tx| tx.release_scope(telegram(), "s", &"a2".into())), held);
        assert_eq!(it.scope(), None);
    }
}

#[test]
fn assignments_to_an_unknown_instance_fail() {
    let mut it = Connector::new();
    let assignments: [(&str, Assign); 5] = [
        ("author", |tx| tx.bind_author(telegram(), "u", &"none".into())),
        ("principal", |tx| tx.put_principal(&"none".into(), telegram(), "u", Some(true))),
        ("scope", |tx| tx.grant_scope(telegram(), "s", &"none".into())),
        ("assigned scope", |tx| tx.assign_scope(telegram(), "s", &"none".into())),
        ("link code", |tx| tx.add_link_code(&"none".into(), later(60)).map(drop)),
    ];
    for (name, assign) in assignments {
        assert_eq!(it.store.write(assign), Err(Error::Missing("instance")), "{name}");
    }
}

#[test]
fn assigned_chat_is_removed_from_other_instances() {
    let mut it = Connector::new();
    for instance in ["a1", "b1"] {
        let chat = InstanceChat {
            platform: telegram(),
            chat_id: "7".into(),
            session_key: "k".into(),
            thread_id: None,
            scope_id: None,
            chat_type: "dm".into(),
            name: None,
        };
        let entry = Entry {
            id: instance.into(),
            platform: "telegram".into(),
            carries: Carries::Inbound,
            size: 2,
            at: NOW,
            strikes: 0,
        };
        let seen = (link(), instance.into());
        let arrival = Arrival { entry, payload: "{}".into(), seen, chat: Some(chat) };
        let permission = Permission {
            id: instance.into(),
            instance: instance.into(),
            platform: telegram(),
            chat_id: "7".into(),
            session_key: "k".into(),
            kind: "reply".into(),
            value: Secret::new("token"),
            expires_at: later(60),
        };
        it.write(|tx| {
            tx.record_event(&instance.into(), &arrival)?;
            tx.put_permission(&permission)
        });
    }
    let has = |it: &Connector, instance: &str| {
        let id = instance.into();
        let known = it.store.known_chat(&id, telegram(), "7").unwrap().is_some();
        (known, it.store.permission(instance, &id, telegram(), "7", NOW).unwrap().is_some())
    };
    assert_eq!((has(&it, "a1"), has(&it, "b1")), ((true, true), (true, true)));
    it.write(|tx| tx.assign_chat(telegram(), "7", &"b1".into()));
    assert_eq!((has(&it, "a1"), has(&it, "b1")), ((false, false), (true, true)));
}

#[test]
fn lists_locally_stored_media() {
    let mut it = Connector::new();
    assert_eq!(it.store.media_here().unwrap(), HashSet::new());
    for (id, reference) in [("stored", None), ("remote", Some("{}".to_owned()))] {
        let name = None;
        let mime = None;
        let media = Media {
            id: id.into(),
            instance: "a1".into(),
            reference,
            name,
            mime,
            size: 9,
            expires_at: later(60),
        };
        it.write(|tx| tx.put_media(&media));
    }
    assert_eq!(it.store.media_here().unwrap(), HashSet::from(["stored".to_owned()]));
}
