//! Scenarios of the simulator, and the link conditions that they generate.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some(scenario) = std::str::from_utf8(data).ok().and_then(|text| toml::from_str(text).ok()) {
        barograph_sim::fuzzing::fuzz_scenario(scenario);
    }
});
