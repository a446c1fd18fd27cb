//! Credentials, provisioning and refusals.

use petasos_core::Fault;
use petasos_platforms::Secret;
use petasos_platforms::relay::{Enroll, Grant, Policy, Provision, credentials, enroll};
use petasos_relay::token::{Claim, bearer};
use serde_json::json;

use super::rig::{platform, rig, rig_with};

#[tokio::test]
async fn every_dial_sends_a_fresh_token() {
    let rig = rig_with(|config| config.credentials = Some(credentials("gw-alpha", "s3cret")));
    let _line = rig.up().await;
    let shown = rig.fake.read(|world| world.bearers[0].clone()).expect("a header");
    let claim = Claim::read(bearer(&shown).expect("a bearer")).expect("a token");
    assert_eq!(claim.payload, "gw-alpha");
    assert!(claim.exp > 1_700_000_000 && !shown.contains("s3cret"));
}

#[tokio::test]
async fn retries_refusal_before_first_handshake() {
    let rig = rig();
    rig.fake.refuse(3, 4401, "unauthorized");
    let _line = rig.up().await;
    assert_eq!(rig.fake.read(|world| world.connections()), 4);
}

#[tokio::test]
async fn gives_up_after_two_refusals() {
    let rig = rig();
    let line = rig.up().await;
    rig.fake.close(4401, "unauthorized");
    rig.until("a second handshake", |world| (world.frames("hello").len() == 2).then_some(())).await;
    rig.fake.close(4401, "unauthorized");
    let error = line.ended().await;
    assert_eq!((error.fault(), error.code()), (Fault::Fatal, "relay_disabled"));
    assert!(error.to_string().contains("GATEWAY_RELAY_SECRET"), "{error}");
    assert!(matches!(rig.send_text("anyone?").await.expect_err("revoked").fault(), Fault::Later { .. }));
    assert_eq!(rig.dials_so_far().await, 2);
}

#[tokio::test]
async fn gives_up_after_refusals_of_two_dials() {
    let rig = rig();
    let line = rig.up().await;
    rig.fake.refuse(10, 4401, "");
    rig.fake.close(1001, "");
    assert_eq!(line.ended().await.code(), "relay_disabled");
    assert_eq!(rig.fake.read(|world| world.connections()), 3);
}

#[tokio::test]
async fn expired_token_is_no_refusal() {
    let rig = rig();
    let _line = rig.up().await;
    for _ in 0..3 {
        rig.fake.close(4401, "expired");
        let before = rig.fake.read(|world| world.frames("hello").len());
        rig.until("another handshake", move |world| (world.frames("hello").len() > before).then_some(()))
            .await;
    }
}

fn grant(url: &str) -> Grant {
    Grant {
        token_url: format!("{url}/relay/token"),
        client_id: "us".into(),
        client_secret: Secret::new("idp"),
        scope: None,
    }
}

#[tokio::test]
async fn provisions_credentials_then_sends_policies() {
    let rig = rig_with(|config| {
        let grant = grant(&config.url);
        config.provision = Some(Provision {
            gateway_id: "gw-host".into(),
            route_keys: vec!["g1".into()],
            instance_id: None,
            wake_url: Some("https://wake".into()),
            grant,
        });
        config.policies.push(Policy {
            platform: platform("discord"),
            require_address: true,
            free_response_scopes: vec![],
            allow_other_bots: false,
        });
    });
    let _line = rig.up().await;
    let (posted, shown) = rig.fake.read(|world| (world.posted.clone(), world.bearers[0].clone()));
    let asked = posted.iter().find(|it| it.endpoint == "provision").expect("provisioned");
    assert_eq!(asked.bearer.as_deref(), Some("Bearer identity"));
    assert_eq!(asked.body["platform"], "discord");
    assert_eq!(asked.body["wakeUrl"], "https://wake");
    assert!(asked.body.get("instanceId").is_none());
    let policy = posted.iter().find(|it| it.endpoint == "policy").expect("a policy");
    assert_eq!(policy.body["requireAddress"], true);
    let claim = Claim::read(bearer(&shown.expect("a header")).expect("a bearer")).expect("a token");
    assert_eq!(claim.payload, "gw-host");
}

#[tokio::test]
async fn dials_despite_failed_provisioning() {
    for (status, body) in [(200, json!({"gatewayId": "gw", "secretIssued": false})), (500, json!({}))] {
        let rig = rig_with(|config| {
            let grant = grant(&config.url);
            let gateway_id = "gw-host".into();
            config.provision =
                Some(Provision { gateway_id, route_keys: vec![], instance_id: None, wake_url: None, grant });
        });
        rig.fake.respond_next("provision", status, body);
        let _line = rig.up().await;
        assert_eq!(rig.fake.read(|world| world.bearers[0].clone()), None);
    }
}

#[tokio::test]
async fn enrolling_returns_credentials_once() {
    let rig = rig();
    let asked = Enroll {
        url: rig.fake.url(),
        token: Secret::new("once"),
        gateway_id: "gw-1".into(),
        wake_url: Some("https://wake".into()),
        instance_id: None,
        grant: None,
    };
    let enrolled = enroll(&asked).await.expect("enrolled");
    assert_eq!(enrolled.credentials.gateway_id.as_str(), "gw-1");
    assert_eq!(enrolled.credentials.secret.expose(), "issued-secret");
    let posted = rig.fake.read(|world| world.posted[0].clone());
    assert_eq!((posted.endpoint.as_str(), &posted.body["wakeUrl"]), ("enroll", &json!("https://wake")));
    rig.fake.respond_next("enroll", 403, json!({"error": "used"}));
    let refused = enroll(&asked).await.expect_err("used").to_string();
    assert!(refused.contains("403") && !refused.contains("once\""), "{refused}");
}

#[tokio::test]
async fn sends_wake_address_at_every_start() {
    for status in [200, 404] {
        let rig = rig_with(|config| {
            config.credentials = Some(credentials("gw-alpha", "s3cret"));
            config.wake_url = Some("https://wake.example/1".into());
        });
        rig.fake.respond_next("wake", status, json!({}));
        let _line = rig.up().await;
        let told = rig.fake.read(|world| world.posted.clone());
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(
            (told[0].endpoint.as_str(), &told[0].body),
            ("wake", &json!({"wakeUrl": "https://wake.example/1"}))
        );
        assert!(told[0].bearer.is_some());
    }
}
