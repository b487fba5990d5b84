"""UpdateFeatures (KIP-584), UnregisterBroker: what the cluster is made of, as administrators change it."""

from __future__ import annotations

from kafkalite.coordination.topic_configs import BROKERS
from kafkalite.coordinators.services import Services
from kafkalite.errors import ErrorCode, api_error
from kafkalite.features import why_not
from kafkalite.kafka.request import Handler, Request
from kafkalite.model import BrokerId
from kafkalite.protocol import wire
from kafkalite.rpc.messages.changes import SETTINGS

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
#: From this version on, the response names no features.
_WITHOUT_RESULTS_FROM = 2
#: What Kafka says before the first error.
_FAILED = "The update failed for all features since the following feature had an error: "
#: How long UnregisterBroker waits for the broker to be gone.
_STOPPING_S = 1.0


class FeatureHandlers:
    def __init__(self, services: Services) -> None:
        self._services = services

    def table(self) -> dict[str, Handler]:
        return {"UpdateFeatures": self.update, "UnregisterBroker": self.unregister}

    async def update(self, request: Request, message: wire.UpdateFeaturesRequest) -> wire.UpdateFeaturesResponse:
        """All updates or none; the first error is that of the response, as with Kafka 4."""
        response = wire.UpdateFeaturesResponse
        brokers = self._services.metadata([]).brokers
        levels = self._services.features().levels
        wanted: dict[str, int] = {}
        texts: dict[str, str] = {}
        for update in message.feature_updates:
            name, level = update.feature, update.max_version_level
            kind = update.upgrade_type
            if request.version < 1:
                kind = _SAFE_DOWNGRADE if update.allow_downgrade else _UPGRADE
            now = levels.get(name, 0)
            if kind not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
                raise api_error(ErrorCode.INVALID_UPDATE_VERSION, f"{name}: there is no upgrade type {kind}")
            if name in texts:
                raise api_error(ErrorCode.INVALID_REQUEST, f"{name} is named twice")
            texts[name] = why_not(name, level, brokers)
            if not texts[name] and level < now and kind == _UPGRADE:
                texts[name] = (
                    f"Invalid update version {level} for feature {name}. Can't downgrade the version of this feature "
                    "without setting the upgrade type to either safe or unsafe downgrade."
                )
            if not texts[name] and level > now and kind != _UPGRADE:
                texts[name] = f"Invalid update version {level} for feature {name}. Can't downgrade to a newer version."
            wanted[name] = level
        wrong = next((text for text in texts.values() if text), None)
        if wrong is None and wanted and not message.validate_only:
            await self._services.update_features(wanted)
            await self._services.known_everywhere(SETTINGS)
        code = int(ErrorCode.INVALID_UPDATE_VERSION)
        return response(
            error_code=0 if wrong is None else code,
            error_message=None if wrong is None else _FAILED + wrong,
            results=[
                response.UpdatableFeatureResult(name, code if text else 0, text or None)
                for name, text in texts.items()
                if request.version < _WITHOUT_RESULTS_FROM
            ],
        )

    async def _until_stopped(self, broker_id: BrokerId) -> None:
        """A broker whose process has just ended may be known for a moment. Raises ApiError INVALID_REQUEST."""
        clock = self._services.clock
        until = clock.monotonic() + _STOPPING_S
        while any(broker.broker_id == broker_id for broker in self._services.metadata([]).brokers):
            if clock.monotonic() > until:
                raise api_error(ErrorCode.INVALID_REQUEST, f"broker {broker_id} is running; stop it first")
            await self._services.metadata_changed()

    async def unregister(
        self, request: Request, message: wire.UnregisterBrokerRequest
    ) -> wire.UnregisterBrokerResponse:
        """Forget a broker that is gone for good: its own settings go, and no partition waits for what it may have.

        A registration here is a znode that lasts as long as the broker's session, so a live broker must be stopped
        first. One that still has replicas is refused: they are moved with a reassignment.
        """
        broker_id = BrokerId(message.broker_id)
        await self._until_stopped(broker_id)
        known = self._services.metadata(None)
        held = sum(broker_id in each.replicas for topic in known.topics for each in topic.partitions)
        if held:
            text = f"broker {broker_id} still has replicas of {held} partitions; move them to other brokers first"
            raise api_error(ErrorCode.INVALID_REQUEST, text)
        settings = await self._services.entity_overrides(BROKERS, str(broker_id))
        has_started = await self._services.forget_broker(broker_id)
        if not settings and not has_started:
            raise api_error(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
        if settings and not await self._services.replace_entity_overrides(BROKERS, str(broker_id), settings, {}):
            raise api_error(ErrorCode.REQUEST_TIMED_OUT, f"the settings of broker {broker_id} are being changed")
        await self._services.known_everywhere(SETTINGS)
        return wire.UnregisterBrokerResponse(error_message=None)
