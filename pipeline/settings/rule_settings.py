"""Convert the broker's settings into the settings objects of the rules."""

from __future__ import annotations

from pipeline.settings.settings import BrokerSettings
from udfs.broker.pull_message_processor import PullBrokerConfig
from udfs.broker.send_message import SendBrokerConfig
from udfs.broker.topic_config import SystemTopics
from udfs.pull.codes import BrokerRole


def pull_broker_config(settings: BrokerSettings) -> PullBrokerConfig:
    """Return the settings that the answer to a pull depends on, without those of the store's scan."""
    value = settings.value
    return PullBrokerConfig(
        broker_name=value("brokerName"),
        broker_ip1=value("brokerIP1"),
        broker_role=BrokerRole[value("brokerRole")],
        broker_permission=value("brokerPermission"),
        auto_create_subscription_group=value("autoCreateSubscriptionGroup"),
        enable_property_filter=value("enablePropertyFilter"),
        filter_support_retry=value("filterSupportRetry"),
        slave_read_enable=value("slaveReadEnable"),
        offset_check_in_slave=value("offsetCheckInSlave"),
        long_polling_enable=value("longPollingEnable"),
        short_polling_time_mills=value("shortPollingTimeMills"),
        transfer_msg_by_heap=value("transferMsgByHeap"),
        enable_lmq=value("enableLmq"),
        lite_pull_message_enable=value("litePullMessageEnable"),
        reject_pull_consumer_enable=value("rejectPullConsumerEnable"),
    )


def send_broker_config(settings: BrokerSettings) -> SendBrokerConfig:
    """Return the settings that sending a message depends on."""
    value = settings.value
    return SendBrokerConfig(
        broker_cluster_name=value("brokerClusterName"),
        broker_ip1=value("brokerIP1"),
        broker_permission=value("brokerPermission"),
        auto_create_topic_enable=value("autoCreateTopicEnable"),
        auto_create_subscription_group=value("autoCreateSubscriptionGroup"),
        broker_id=value("brokerId"),
        region_id=value("regionId"),
        trace_on=value("traceOn"),
    )


def system_topics(settings: BrokerSettings) -> SystemTopics:
    """Return the settings of the topics that a broker starts with."""
    value = settings.value
    return SystemTopics(
        broker_name=value("brokerName"),
        broker_cluster_name=value("brokerClusterName"),
        default_topic_queue_nums=value("defaultTopicQueueNums"),
        auto_create_topic_enable=value("autoCreateTopicEnable"),
        cluster_topic_enable=value("clusterTopicEnable"),
        broker_topic_enable=value("brokerTopicEnable"),
        trace_topic_enable=value("traceTopicEnable"),
        msg_trace_topic_name=value("msgTraceTopicName"),
    )
