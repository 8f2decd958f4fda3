//! The OpenAPI document and the types have the same properties.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use barograph_api::*;
use barograph_engine::{Capabilities, Cursor, EngineError, Entry, Record as EngineRecord, wire};
use barograph_forecast::{Failure, Name, Outcome, Quantity};
use serde::de::value::Error as Stop;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde::{Deserialize, Serialize, forward_to_deserialize_any};
use serde_json::{Value, json};

/// A deserializer that records the fields of a struct, then stops with an error.
struct Fields<'a>(&'a mut BTreeSet<String>);

impl<'de> Deserializer<'de> for Fields<'_> {
    type Error = Stop;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Stop> {
        self.0.extend(fields.iter().map(ToString::to_string));
        Err(Stop::custom("noted"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Stop> {
        Err(Stop::custom("no struct"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// The properties of an object, and the properties that are always present.
#[derive(Debug, Default, PartialEq)]
struct Object {
    properties: BTreeSet<String>,
    required: BTreeSet<String>,
}

fn keys(value: &Value) -> BTreeSet<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

/// The properties of a struct without flattened parts.
fn of<'de, T: Deserialize<'de> + Serialize + Default>() -> Object {
    let mut properties = BTreeSet::new();
    let _ = T::deserialize(Fields(&mut properties));
    Object { properties, required: keys(&serde_json::to_value(T::default()).unwrap()) }
}

/// All properties of these JSON texts; a property is required if every text has it.
fn written(texts: &[String]) -> Object {
    let all = texts.iter().map(|text| keys(&serde_json::from_str(text).unwrap()));
    let required = all.clone().reduce(|one, other| &one & &other).unwrap();
    Object { properties: all.flatten().collect(), required }
}

/// Each object of the API, keyed by its path in the document.
fn shapes() -> BTreeMap<String, Object> {
    let event = PeerEvent {
        id: 0,
        event: PeerChange::Joined,
        time_s: 0.0,
        host: String::new(),
        addresses: Vec::new(),
        version: String::new(),
        groups: Vec::new(),
    };
    let point = of::<SeriesPoint>();
    let mut point_event = written(&[serde_json::to_string(&StreamEvent::default()).unwrap()]);
    point_event.properties = &point_event.properties - &point.properties;
    [
        ("Error", of::<ErrorBody>()),
        ("Station", of::<Station>()),
        ("Station/properties/echo", of::<Echo>()),
        ("Series", of::<SeriesSummary>()),
        ("Record", of::<Record>()),
        ("Point", point),
        ("Event/allOf/1", point_event),
        ("Lag", of::<MissedEvents>()),
        ("Forecast", of::<Forecast>()),
        ("Forecasts", of::<Forecasts>()),
        ("AgedForecast", of::<AgedForecast>()),
        ("HorizonForecast", of::<HorizonForecast>()),
        ("Quantile", of::<Quantile>()),
        ("TransferForecast", of::<TransferForecast>()),
        ("SeriesList", of::<SeriesList>()),
        ("Latest", of::<LatestPage>()),
        ("History", of::<HistoryPage>()),
        ("Recent", of::<RecentPoints>()),
        ("ForecastList", of::<ForecastList>()),
        ("BestPart", of::<QuantityForecast>()),
        ("BestHost", of::<HostForecast>()),
        ("Best", of::<HostRanking>()),
        ("Best/properties/unknown/items", of::<UnknownHost>()),
        ("Measurements", of::<Measurements>()),
        ("Measurements/properties/records/items", of::<NewRecord>()),
        ("Stored", of::<StoredCount>()),
        ("Target", of::<Target>()),
        ("TargetList", of::<TargetList>()),
        ("NewTarget", of::<NewTarget>()),
        ("Mesh", of::<Mesh>()),
        ("Mesh/properties/directory", of::<Directory>()),
        ("Mesh/properties/peers", of::<PeerCounts>()),
        ("Spool", of::<Spool>()),
        ("Peer", of::<Peer>()),
        ("Peer/properties/dropped/items", of::<DroppedAddress>()),
        ("PeerList", of::<PeerList>()),
        ("PeerEvent", written(&[serde_json::to_string(&event).unwrap()])),
        ("Removed", of::<RemovedName>()),
        ("Health", of::<Health>()),
        ("Health/properties/limits/items", of::<LimitUsage>()),
        ("NewInvitation", of::<NewInvitation>()),
        ("Invitation", of::<Invitation>()),
        ("Member", of::<Member>()),
        ("MemberList", of::<MemberList>()),
        ("EngineRegistered", of::<EngineRegistered>()),
        ("EngineRenewed", of::<EngineRenewed>()),
        ("EngineAppended", of::<EngineAppended>()),
        ("EngineWatermark", of::<EngineWatermark>()),
        ("EngineNextSeq", of::<EngineNextSeq>()),
        ("TestCost", of::<BulkTestCost>()),
        ("NewTest", of::<NewBulkTest>()),
        ("TestRefused", of::<BulkTestRefused>()),
        ("Test", of::<BulkTest>()),
        ("LatencyList", of::<LatencyList>()),
        ("Latency", of::<Latency>()),
        ("TestList", of::<BulkTestList>()),
        ("TestList/properties/budget", of::<BulkTestBudget>()),
        ("TestList/properties/budget/properties/spent", of::<BulkTestSpent>()),
        ("Acceptance", of::<AcceptPosition>()),
        ("Sites", of::<Sites>()),
        ("Sites/properties/now", of::<CurrentPosition>()),
        ("Sites/properties/proposed/oneOf/0", of::<ProposedPosition>()),
        ("Sites/properties/pending/oneOf/0", of::<PendingPosition>()),
        ("Sites/properties/sites/items", of::<Site>()),
        ("Sites/properties/sites/items/properties/within/oneOf/0", of::<Estimate>()),
        ("Sites/properties/sites/items/properties/next/oneOf/0", of::<NextHost>()),
        ("NewTransferLine", of::<NewReceiver>()),
        ("NewTransfer", of::<NewTransfer>()),
        ("TransferLine", of::<WaitingTransfer>()),
        ("Transfer", of::<Transfer>()),
        ("Transfer/properties/lost", of::<LostPackets>()),
        ("TransferList", of::<TransferList>()),
    ]
    .into_iter()
    .chain(engine_shapes())
    .map(|(place, object)| (place.to_string(), object))
    .collect()
}

/// The properties of objects that `barograph-engine` serialises.
fn engine_shapes() -> [(&'static str, Object); 6] {
    let name = || Name::new("a").unwrap();
    let entry = |key| Entry {
        host: name(),
        addresses: Vec::new(),
        version: "1".into(),
        groups: Vec::new(),
        capabilities: Capabilities::default(),
        key,
    };
    let record = |outcome, detail: &str| EngineRecord {
        origin: name(),
        seq: 1,
        series: barograph_forecast::SeriesId { source: name(), target: name(), quantity: Quantity::RTT },
        time_unix_ns: 1,
        outcome,
        detail: detail.into(),
    };
    let value = record(Outcome::Value(1.0), "{}");
    let failed = record(Outcome::Failed { failure: Failure::Reset, after_s: 1.0 }, "");
    let errors = [
        EngineError::Lagged { missed: 1 },
        EngineError::TooNew { found: 2, known: 1 },
        EngineError::Denied(String::new()),
    ];
    let event = |event| written(&[wire::event_text(&event)]);
    [
        ("EngineError", written(&errors.map(|error| wire::error_text(&error)))),
        ("EngineEntry", written(&[entry(None), entry(Some([0; 32]))].map(|entry| wire::entry_text(&entry)))),
        ("EngineRecord", written(&[&value, &failed].map(wire::record_text))),
        ("EngineEvent/oneOf/0", event(barograph_engine::Event::Up(entry(None)))),
        ("EngineEvent/oneOf/2", event(barograph_engine::Event::Down(name()))),
        ("EnginePlaced/oneOf/0", written(&[wire::subscription_line(Cursor(1), &value)])),
    ]
}

/// Collects `value` and all values inside it that have `properties`, keyed by their path in the
/// document.
fn documented(place: &str, value: &Value, found: &mut BTreeMap<String, Object>) {
    if let Some(properties) = value.get("properties") {
        let required = value["required"].as_array().into_iter().flatten();
        let required = required.map(|key| key.as_str().unwrap().to_string()).collect();
        found.insert(place.to_string(), Object { properties: keys(properties), required });
    }
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(object) => object.iter().map(|(key, inner)| (key.clone(), inner)).collect(),
        Value::Array(list) => {
            list.iter().enumerate().map(|(index, inner)| (index.to_string(), inner)).collect()
        }
        _ => return,
    };
    for (key, inner) in inner {
        documented(format!("{place}/{key}").trim_start_matches('/'), inner, found);
    }
}

#[test]
fn schemas_of_the_document_and_types_have_the_same_properties() {
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    let (mut found, shapes) = (BTreeMap::new(), shapes());
    documented("", &document["components"]["schemas"], &mut found);
    let places = |all: &BTreeMap<String, Object>| all.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(places(&found), places(&shapes));
    for (place, object) in &found {
        let shape = &shapes[place];
        assert_eq!(object.properties, shape.properties, "{place}");
        let missing = &object.required - &shape.required;
        assert!(missing.is_empty(), "{place}: required, and not always written: {missing:?}");
    }
}

/// Each reference in a request or response names an existing schema.
#[test]
fn every_schema_reference_names_a_schema_of_the_document() {
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    let schemas = keys(&document["components"]["schemas"]);
    let mut referred = 0;
    let text = document["paths"].to_string();
    for reference in text.split("\"$ref\":\"#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(schemas.contains(name), "{name}");
        referred += 1;
    }
    assert!(schemas.len() < referred);
}

fn is_strict<T: DeserializeOwned>(mut body: Value) -> bool {
    let reads = serde_json::from_value::<T>(body.clone()).is_ok();
    body["unknown"] = json!(1);
    reads && serde_json::from_value::<T>(body).is_err()
}

#[test]
fn request_types_reject_unknown_keys_and_response_types_accept_them() {
    assert!(is_strict::<Measurements>(json!({ "records": [{ "quantity": "a", "value": 1 }] })));
    assert!(is_strict::<NewRecord>(json!({ "quantity": "a", "value": 1 })));
    assert!(is_strict::<NewTarget>(json!({ "target": "a" })));
    assert!(is_strict::<NewBulkTest>(json!({ "to": "a" })));
    assert!(is_strict::<NewInvitation>(json!({})) && is_strict::<AcceptPosition>(json!({})));
    assert!(is_strict::<NewTransfer>(json!({ "paths": ["/a"], "line": "x" })));
    assert!(is_strict::<NewReceiver>(json!({ "directory": "/a" })));
    let newer = json!({ "transfers": [{ "id": "1", "state": "paused", "more": 1 }] });
    let list: TransferList = serde_json::from_value(newer).unwrap();
    assert_eq!((list.transfers[0].id.as_str(), list.transfers[0].state), ("1", TransferState::Unknown));
}
