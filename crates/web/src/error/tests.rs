use super::*;

#[test]
fn closed_gateway_reports_reason_and_retry_after() {
    for (error, code, word) in [
        (Error::Closed(NotAccepting::Draining), "gateway_draining", "draining for maintenance"),
        (
            Error::Closed(NotAccepting::ShuttingDown { restart: true }),
            "gateway_draining",
            "draining before it restarts",
        ),
        (
            Error::Closed(NotAccepting::ShuttingDown { restart: false }),
            "gateway_draining",
            "draining before it stops",
        ),
        (Error::Stopping, "gateway_draining", "draining before it stops"),
        (Error::Closed(NotAccepting::AtCapacity { running: 3, cap: 3 }), "too_many_sessions", "(3/3)"),
    ] {
        let refused = ApiError::from(error);
        let body = refused.body(BodyShape::Page);
        assert!(body["error"]["message"].as_str().is_some_and(|text| text.contains(word)), "{body}");
        assert_eq!(body["error"]["code"], code);
        let response = refused.into_response();
        assert_eq!(
            (response.status().as_u16(), &response.headers()[header::RETRY_AFTER]),
            (503, &"1".parse().unwrap())
        );
    }
}

#[test]
fn each_audience_has_its_own_body_shape() {
    let error = || ApiError::invalid("too_long", "The text is too long").param("text");
    let for_api = error().body(BodyShape::OpenAi);
    let page = error().body(BodyShape::Page);
    let want = json!({ "error": {
        "message": "The text is too long", "type": REQUEST, "param": "text", "code": "too_long",
    } });
    assert_eq!(for_api, want);
    assert_eq!(page, json!({ "error": { "message": "The text is too long", "code": "too_long" } }));
    assert_eq!(ApiError::not_found("no").body(BodyShape::Page)["error"]["code"], "not_found");
    assert_eq!(ApiError::not_found("no").body(BodyShape::OpenAi)["error"]["code"], Value::Null);
    let jobs = ApiError::from(JobError::NotFound);
    assert_eq!(jobs.body(BodyShape::OpenAi), json!({ "error": "Job not found" }));
    assert_eq!(jobs.body(BodyShape::Page)["error"]["message"], "there is no such job");
    for audience in [BodyShape::OpenAi, BodyShape::Page] {
        assert_eq!(ApiError::conflict("busy", "no").into_detail().body(audience), json!({ "detail": "no" }));
    }
}
