// Applies a panel's units, names, colours and overrides to its frames, with Grafana's own code for each.
import {
  FieldConfigOptionsRegistry, applyFieldOverrides, displayNameOverrideProcessor, identityOverrideProcessor,
  numberOverrideProcessor, thresholdsOverrideProcessor, unitOverrideProcessor, valueMappingsOverrideProcessor,
} from '@grafana/data';

const processors = {
  unit: unitOverrideProcessor,
  min: numberOverrideProcessor,
  max: numberOverrideProcessor,
  decimals: numberOverrideProcessor,
  displayName: displayNameOverrideProcessor,
  noValue: identityOverrideProcessor,
  color: identityOverrideProcessor,
  links: identityOverrideProcessor,
  thresholds: thresholdsOverrideProcessor,
  mappings: valueMappingsOverrideProcessor,
};
const custom = ['lineStyle', 'fillOpacity', 'lineWidth', 'showPoints', 'stacking', 'drawStyle', 'align', 'inspect'];

function option(id, process, isCustom) {
  const path = isCustom ? id.replace('custom.', '') : id;
  return { id, path, name: id, isCustom, process, shouldApply: () => true, settings: {} };
}

const registry = new FieldConfigOptionsRegistry(() => [
  ...Object.entries(processors).map(([id, process]) => option(id, process, false)),
  ...custom.map((name) => option(`custom.${name}`, identityOverrideProcessor, true)),
]);

export function shown(frames, fieldConfig, theme) {
  // Of lines, whose colours nobody has set.
  const defaults = { color: { mode: 'palette-classic' }, ...fieldConfig.defaults };
  return applyFieldOverrides({
    data: frames,
    fieldConfig: { defaults, overrides: fieldConfig.overrides ?? [] },
    fieldConfigRegistry: registry,
    replaceVariables: (text) => text,
    theme,
    timeZone: 'utc',
  });
}
